/**
 * The Node SDK of ocipd: an app asks the daemon before its agent's messages leave.
 *
 * App, Agent and Operator reconnect by themselves, with growing pauses, and continue with their token:
 * channels, subscriptions and waiting messages stay. A call waits for the connection, at most for
 * `timeout`. A call whose answer is lost is repeated if a repetition has no second effect; any other one
 * fails with the code CONNECTION_CLOSED, and its effect is unknown.
 *
 * The method `stream` of each opens a Stream, an answer in chunks.
 *
 * Memory is bounded: a line of the daemon has at most `maxLine` bytes. If 4,096 events and chunks wait for
 * the program, or 65,536 while a call waits for its answer, nothing is read until it takes one.
 */
import type {
  AgentMessages, AgentSent, DispatchResult, ErrorCode, Grant, Inbound, Message, Methods, QueueResult, VerdictCode,
} from "./protocol.js";

/** The path of the daemon's socket for apps: OPENCLAWOS_KERNEL_SOCKET, or the usual place. */
export function defaultSocket(): string;

/** No daemon listens on the socket of a first connection. A socket of another user is an Error of its own. */
export class NotRunning extends Error {}

/**
 * For handlers: the text certainly did not leave. After any other error the daemon counts the outcome as
 * unknown, and a person decides about a repetition.
 */
export class NotSent extends Error {}

/** A refusal of the daemon, or, with CONNECTION_CLOSED, a lost connection. */
export class Refused extends Error {
  readonly code: ErrorCode;
  /** The daemon's sentence, without the code. */
  readonly reason: string;
  /** Of a refusal by the rules of messages. */
  readonly verdict?: { code: VerdictCode; reason: string; auditId?: string };
  readonly details?: unknown;
}

export interface Options {
  /** The path of the socket. */
  socket?: string;
  /** Milliseconds that bound each call, with the wait for a connection: 30,000 by default. */
  timeout?: number;
  /** The longest pause between two attempts to connect again, in milliseconds: 5,000 by default. */
  retry?: number;
  /** The length of the longest line of the daemon in bytes, 16 MiB by default. A longer one ends the connection. */
  maxLine?: number;
  /** Called without a cause when the connection is there again, and otherwise with the cause of its end or of a failed attempt. */
  connection?(cause?: Error): void;
}

/**
 * An answer in chunks: `for await (const chunk of stream)`. The loop throws Refused if the daemon refused, with
 * CONNECTION_CLOSED if the connection ended: a stream is not opened again by itself. Leaving the loop closes the
 * stream. Chunks that wait count with the events that wait for handlers.
 */
export class Stream<Chunk> implements AsyncIterableIterator<Chunk> {
  private constructor();
  next(): Promise<IteratorResult<Chunk>>;
  return(): Promise<IteratorResult<Chunk>>;
  [Symbol.asyncIterator](): this;
  /** Ends the stream: chunks that were not taken are dropped, and the daemon sends no more. */
  close(): Promise<void>;
}

declare class Session {
  /** Calls a method of the protocol by its name. A method that answers in chunks is for stream. */
  call<M extends keyof Methods>(method: M, params?: Methods[M]["params"]): Promise<Methods[M]["result"]>;
  /**
   * Asks for an answer in chunks, such as that of config.watch. A refusal is thrown by the first next. A method
   * that answers once gives that answer as the only chunk.
   */
  stream<M extends keyof Methods>(method: M, params?: Methods[M]["params"]): Promise<Stream<Methods[M]["result"]>>;
  /**
   * Ends the connection. Calls under way fail. An App begins no further function, and waits at most 5 seconds for
   * those under way; a function that calls close itself is done with its message. The other messages come to the
   * app's next run.
   */
  close(): Promise<void>;
}

/** The answer about a text or a tool call. If it is neither allowed nor held, it is refused. */
export interface Decision {
  allowed: boolean;
  held: boolean;
  approvalId: string;
  /** The verdict's code, or the error's if the daemon answered with one. */
  code: string;
  reason: string;
  /** The message or the call as it was decided about. */
  data?: any;
  /** The error of an allowed text that was not sent, or whose outcome could not be reported. */
  error?: unknown;
}

/** A text that the app delivers by itself, as it was decided about. */
export interface Text {
  sessionKey: string;
  content: string;
  metadata?: Record<string, unknown>;
  dispatchId?: string;
}

/** The decision of a person, or its absence, about something that was held. */
export interface Outcome {
  approvalId: string;
  resolution: "approved" | "denied" | "taken_over" | "resolved" | "expired" | "request_changes" | "revoked";
  note: string;
  /** Whether a person has let the text go. */
  released: boolean;
  /** The text that send has got, and its error. */
  text?: Text;
  error?: unknown;
}

/** A right is asked for if its handler is there. Handlers of one kind run one after another. */
export interface AppOptions extends Options {
  /** A package name such as "@acme/telegram"; name and version are for people. */
  id: string;
  name?: string;
  version?: string;
  /**
   * The channels that the app owns. A function sends a message to its target; its error is on record as a
   * failed delivery. The app remembers 1,024 ids of messages, and sends no repetition of these. A message
   * whose function has not ended when the app ends comes again in its next run, with the same dispatchId.
   */
  channels?: Record<string, (message: Message) => unknown>;
  /** Gets the messages for the app's agent; complete ends the run of one. */
  receive?(message: Inbound): unknown;
  /**
   * Decides about messages of other agents, within hooks.answer (5 seconds). A change of content or metadata
   * changes the message. An error blocks it; its text is on record, and the sender does not see it.
   */
  intercept?(message: Message): unknown;
  /** Delivers a text that deliver asked about, at once or after a person has approved it. */
  send?(text: Text): unknown;
  /** Is told each decision of a person about something that was held, after send. */
  resolved?(outcome: Outcome): unknown;
}

/** A registered app. */
export class App extends Session {
  /**
   * Connects and registers. Texts that were approved while no app ran are sent before. Fails with NotRunning,
   * with CONFLICT if an app of the id is connected, and with CAPABILITY_DENIED.
   */
  static connect(options: AppOptions): Promise<App>;
  /** Sends a message of the app's agent; the daemon delivers it. A held one must not be sent again: outcome has the decision. */
  dispatch(sessionKey: string, content: string, metadata?: Record<string, unknown>): Promise<DispatchResult>;
  /** Brings in a message for an agent, from the session's channel. */
  queue(sessionKey: string, text: string, metadata?: Record<string, unknown>): Promise<QueueResult>;
  /** Ends a run of the agent, which succeeded unless there is an error. */
  complete(runId: string, error?: string): Promise<void>;
  /**
   * Asks whether a text may leave, and gives an allowed one to send. A held one is given to send once a person
   * has approved it, also if the app runs anew meanwhile. An error in place of an answer is a refusal too.
   */
  deliver(sessionKey: string, content: string): Promise<Decision>;
  /**
   * Asks whether a tool of the app's agent may run; agent is its id if the app has several. The decision of a
   * person about a held call is for one call with the same params: the caller asks again after it.
   */
  tool(name: string, params: unknown, about?: { server?: string; agent?: string }): Promise<Decision>;
  /** Returns once a person has decided about every text that deliver found held, and the approved ones are sent. */
  wait(): Promise<void>;
  /** Returns the decision of a person about something of the app that is held. */
  outcome(approvalId: string): Promise<Outcome>;
}

/** The connection of an agent without an app. */
export class Agent extends Session {
  /** Connects by the token of a grant (`ocipd task grant --agent ID`). */
  static connect(token: string, options?: Options): Promise<Agent>;
  /** Sends a text to a session or to an agent of this daemon. A lost answer is asked for again: the text is sent once. */
  send(to: string, text: string): Promise<AgentSent>;
  /** Reads the inbox, and waits at most so many seconds (20) for a first message. The messages of the cursor's page leave the inbox. */
  read(options?: { cursor?: string; wait?: number }): Promise<AgentMessages>;
}

/** A pre-approval to make. until is in Unix milliseconds. */
export type NewGrant = Pick<Grant, "grantId" | "agent" | "receiver" | "words" | "classification" | "until"> & { maxUses: number };

/** A connection of the operator. The daemon refuses it to apps and to processes that they have started. */
export class Operator extends Session {
  static connect(options?: Options): Promise<Operator>;
  /** Lists the pre-approvals in force. agent is the sender's id or instance id. */
  grants(agent?: string): Promise<Grant[]>;
  /** Makes a pre-approval with a person's armored signature over grantText. */
  addGrant(grant: NewGrant, signature: string): Promise<Grant>;
  /** Ends a pre-approval, and returns whether it was in force. */
  revokeGrant(grantId: string): Promise<boolean>;
}

/**
 * The text that a person signs to make a pre-approval, in the namespace approval@ocipd (ssh-keygen -Y sign).
 * Names are printable ASCII without quotes and backslashes; others throw a TypeError.
 */
export function grantText(grant: NewGrant): string;
