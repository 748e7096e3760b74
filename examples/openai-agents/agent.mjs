#!/usr/bin/env node
// An agent on the OpenAI Agents SDK: a guard asks ocipd about each call of its tools, and the model
// sees each refusal. OPENAI_API_KEY names the key; the first argument is the question.
import { isDeepStrictEqual } from "node:util";
import { Agent, defineToolInputGuardrail, run, setOpenAIAPI, setTracingDisabled, tool, ToolGuardrailFunctionOutputFactory as Answer } from "@openai/agents";
import { App } from "@openclawos/ocipd";
import { z } from "zod";

const ocipd = await App.connect({ id: process.env.BOT_APP ?? "@example/bot" });

const guard = defineToolInputGuardrail({
  name: "ocipd",
  async run({ toolCall }) {
    const params = JSON.parse(toolCall.arguments);
    let answer = await ocipd.tool(toolCall.name, params);
    if (answer.held) { // a person decides; the decision is for one call
      await ocipd.outcome(answer.approvalId);
      answer = await ocipd.tool(toolCall.name, params);
    }
    if (!answer.allowed) return Answer.rejectContent(`refused: ${answer.code}: ${answer.reason}`);
    // A guard cannot change a call, as an interceptor may.
    return isDeepStrictEqual(answer.data.params, params) ? Answer.allow() : Answer.rejectContent("refused: the call was changed");
  },
});

const tools = [
  tool({
    name: "WebFetch", description: "Fetches a page.", parameters: z.object({ url: z.string() }), inputGuardrails: [guard],
    execute: async ({ url }) => (await fetch(url)).text(),
  }),
  tool({
    name: "Clock", description: "Tells the time.", parameters: z.object({ zone: z.string() }), inputGuardrails: [guard],
    execute: ({ zone }) => new Date().toLocaleTimeString("en", { timeZone: zone }),
  }),
];

setOpenAIAPI("chat_completions");
setTracingDisabled(true);
const clerk = new Agent({ name: "Clerk", instructions: "Answer by your tools.", model: process.env.MODEL ?? "gpt-5.2", tools });
try {
  console.log((await run(clerk, process.argv[2] ?? "What time is it in Oslo?")).finalOutput);
} finally {
  await ocipd.close();
}
