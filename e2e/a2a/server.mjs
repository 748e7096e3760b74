// An A2A agent on the official SDK, in both bindings. It answers by the words of a message.
// It listens on the loopback interface, and writes its address.
import { createServer } from 'node:http';
import express from 'express';
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } from '@a2a-js/sdk/server/express';
import { Role, TaskState } from '@a2a-js/sdk';

const text = (value) => ({ content: { $case: 'text', value }, mediaType: 'text/plain', filename: '', metadata: undefined });

const executor = {
  async execute(request, bus) {
    const { taskId, contextId, userMessage } = request;
    const said = userMessage.parts.map((p) => (p.content.$case === 'text' ? p.content.value : p.content.$case)).join(' ');
    // Everything that the agent gets goes to the test.
    console.error(JSON.stringify(said));
    const message = (words) => ({ messageId: `${userMessage.messageId}-answer`, contextId, taskId: '', role: Role.ROLE_AGENT, parts: [text(words)], metadata: undefined, extensions: [], referenceTaskIds: [] });
    const status = (state) => AgentEvent.statusUpdate({ taskId, contextId, status: { state, message: undefined, timestamp: '2026-01-01T00:00:00.000Z' }, metadata: undefined });
    if (!said.includes('task')) {
      bus.publish(AgentEvent.message(message(said.includes('Hello') ? 'Hello back.' : `${userMessage.parts.length} parts`)));
      bus.finished();
      return;
    }
    bus.publish(AgentEvent.task({ id: taskId, contextId, status: { state: TaskState.TASK_STATE_SUBMITTED, message: undefined, timestamp: '2026-01-01T00:00:00.000Z' }, artifacts: [], history: [], metadata: undefined }));
    bus.publish(status(TaskState.TASK_STATE_WORKING));
    for (const words of ['one ', 'two']) {
      bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, append: words === 'two', lastChunk: words === 'two', metadata: undefined, artifact: { artifactId: 'a', name: 'numbers', description: '', parts: [text(words)], metadata: undefined, extensions: [] } }));
    }
    bus.publish(status(TaskState.TASK_STATE_COMPLETED));
    bus.finished();
  },
  async cancelTask() {},
};

const app = express();
const server = createServer(app).listen(0, '127.0.0.1', () => {
  const url = `http://127.0.0.1:${server.address().port}`;
  const card = {
    name: 'Counting agent', description: 'It counts.', version: '1.0.0', provider: undefined, documentationUrl: undefined, iconUrl: undefined,
    supportedInterfaces: [
      { url: `${url}/rpc`, protocolBinding: 'JSONRPC', tenant: '', protocolVersion: '1.0' },
      { url: `${url}/rest`, protocolBinding: 'HTTP+JSON', tenant: '', protocolVersion: '1.0' },
    ],
    capabilities: { streaming: true, pushNotifications: true, extensions: [], extendedAgentCard: false },
    securitySchemes: {}, securityRequirements: [], defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'],
    skills: [{ id: 'count', name: 'Count', description: 'Counts.', tags: [], examples: [], inputModes: [], outputModes: [], securityRequirements: [] }], signatures: [],
  };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), executor);
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
  app.use('/rpc', jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
  app.use('/rest', restHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
  console.log(url);
});
