#!/usr/bin/env node
// A graph of LangGraph: its node for tools asks ocipd about each call, and the model sees each
// refusal. OPENAI_API_KEY names the key; the first argument is the question.
import { ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { END, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { ChatOpenAI } from "@langchain/openai";
import { App } from "@openclawos/ocipd";
import { z } from "zod";

const ocipd = await App.connect({ id: process.env.BOT_APP ?? "@example/bot" });

const tools = {
  WebFetch: tool(async ({ url }) => (await fetch(url)).text(), { name: "WebFetch", description: "Fetches a page.", schema: z.object({ url: z.string() }) }),
  Clock: tool(({ zone }) => new Date().toLocaleTimeString("en", { timeZone: zone }), {
    name: "Clock", description: "Tells the time.", schema: z.object({ zone: z.string() }),
  }),
};

async function decided(call) {
  let answer = await ocipd.tool(call.name, call.args);
  if (answer.held) { // a person decides; the decision is for one call
    await ocipd.outcome(answer.approvalId);
    answer = await ocipd.tool(call.name, call.args);
  }
  if (answer.allowed) return tools[call.name].invoke({ ...call, type: "tool_call", args: answer.data.params }); // as it was decided about
  return new ToolMessage({ content: `refused: ${answer.code}: ${answer.reason}`, tool_call_id: call.id, name: call.name, status: "error" });
}

const model = new ChatOpenAI({ model: process.env.MODEL ?? "gpt-5.2" }).bindTools(Object.values(tools));
const graph = new StateGraph(MessagesAnnotation)
  .addNode("model", async ({ messages }) => ({ messages: [await model.invoke(messages)] }))
  .addNode("tools", async ({ messages }) => ({ messages: await Promise.all(messages.at(-1).tool_calls.map(decided)) }))
  .addEdge(START, "model")
  .addConditionalEdges("model", ({ messages }) => (messages.at(-1).tool_calls?.length ? "tools" : END))
  .addEdge("tools", "model")
  .compile();
try {
  const { messages } = await graph.invoke({ messages: [{ role: "user", content: process.argv[2] ?? "What time is it in Oslo?" }] });
  console.log(messages.at(-1).content);
} finally {
  await ocipd.close();
}
