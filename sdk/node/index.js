// The Node SDK of ocipd. index.d.ts describes it.
export { Agent, Operator, grantText } from "./lib/agent.js";
export { App } from "./lib/app.js";
export { NotRunning, NotSent, Refused } from "./lib/errors.js";
export { defaultSocket } from "./lib/session.js";
export { Stream } from "./lib/stream.js";
