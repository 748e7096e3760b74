// A client on the official SDK. It speaks to the agent whose card is at the first argument, by
// the binding that the second one names, and writes a line for each answer and event. Ids that
// the server makes are written as their places in the order of their first use.
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { Message, Role, StreamResponse, Task } from '@a2a-js/sdk';

const [, , address, binding, ...only] = process.argv;
const ids = new Map();
// The envelopes of ocipd are left out, and so is what holds nothing else.
const extension = 'https://github.com/openclawos/ocipd/a2a/ocip/v1';
const plain = (name, value) => {
  if (name === 'extensions') return value.filter((uri) => uri !== extension).length > 0 ? value : undefined;
  if (name !== 'metadata' || !value?.[extension]) return value;
  const { [extension]: _, ...rest } = value;
  return Object.keys(rest).length > 0 ? rest : undefined;
};
const write = (what, value) =>
  console.log(what, JSON.stringify(value, plain).replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, (id) => ids.get(id) ?? (ids.set(id, `id-${ids.size}`), ids.get(id))));
const transports = [binding === 'JSONRPC' ? new JsonRpcTransportFactory() : new RestTransportFactory()];
const client = await new ClientFactory({ transports, preferredTransports: [binding] }).createFromUrl(address, '');

const text = (value) => ({ content: { $case: 'text', value }, mediaType: '', filename: '', metadata: undefined });
const request = (messageId, parts) => ({
  tenant: '', configuration: undefined, metadata: undefined,
  message: { messageId, contextId: '', taskId: '', role: Role.ROLE_USER, parts, metadata: undefined, extensions: [], referenceTaskIds: [] },
});
const attempt = async (what, run) => {
  try {
    await run();
  } catch (error) {
    write(what, { error: error.message, code: error.code });
  }
};
const show = (result) => ('parts' in result ? Message.toJSON(result) : Task.toJSON(result));

if (only[0] === 'push') {
  // The webhook at the second word gets what becomes of a task, and its configuration reads as it was set.
  const config = (id, taskId) => ({ tenant: '', id, taskId, url: only[1], token: `token of ${id}`, authentication: undefined });
  const begun = request('m-push', [text('Begin a task.')]);
  begun.configuration = { acceptedOutputModes: [], taskPushNotificationConfig: config('h1', ''), historyLength: undefined, returnImmediately: false };
  await attempt('push', async () => {
    const { id } = await client.sendMessage(begun);
    const all = async () => (await client.listTaskPushNotificationConfig({ tenant: '', taskId: id, pageSize: 0, pageToken: '' })).configs.length;
    write('get', await client.getTaskPushNotificationConfig({ tenant: '', taskId: id, id: 'h1' }));
    write('create', await client.createTaskPushNotificationConfig(config('h2', id)));
    write('list', await all());
    await client.deleteTaskPushNotificationConfig({ tenant: '', taskId: id, id: 'h1' });
    write('list', await all());
  });
  process.exit();
}
if (only.length > 0) {
  await attempt('only', async () => write('only', show(await client.sendMessage(request(only[0], [text(only[1])])))));
  process.exit();
}
await attempt('message', async () => write('message', show(await client.sendMessage(request('m-1', [text('Hello there.')])))));
await attempt('parts', async () => write('parts', show(await client.sendMessage(request('m-2', [
  text('A list and a file:'),
  { content: { $case: 'data', value: { list: [1, 2.5, 'three'] } }, mediaType: 'application/json', filename: '', metadata: undefined },
  { content: { $case: 'raw', value: Buffer.from('a small file') }, mediaType: 'text/plain', filename: 'a.txt', metadata: undefined },
  { content: { $case: 'url', value: 'https://example.com/b.png' }, mediaType: 'image/png', filename: 'b.png', metadata: undefined },
])))));
let task = '';
await attempt('stream', async () => {
  for await (const event of client.sendMessageStream(request('m-3', [text('Begin a task.')]))) {
    const shown = StreamResponse.toJSON(event);
    task = shown.task?.id ?? task;
    // The agent keeps the message as it came: with the disclosure and the envelope.
    delete shown.task?.history;
    write('stream', shown);
  }
});
await attempt('task', async () => {
  const got = Task.toJSON(await client.getTask({ tenant: '', id: task, historyLength: undefined }));
  delete got.history;
  write('task', got);
});
await attempt('tasks', async () => write('tasks', (await client.listTasks({ tenant: '', contextId: '', status: 0, pageToken: '', statusTimestampAfter: undefined })).tasks.length));
await attempt('cancel', async () => write('cancel', await client.cancelTask({ tenant: '', id: task, metadata: undefined })));
await attempt('unknown', async () => write('unknown', await client.getTask({ tenant: '', id: 'none', historyLength: undefined })));
await attempt('subscribe', async () => {
  for await (const event of client.resubscribeTask({ tenant: '', id: task })) write('subscribe', StreamResponse.toJSON(event));
});
