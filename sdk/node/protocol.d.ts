// OpenClawOS kernel protocol 1.0: declarations made by `ocipd protocol types`.

export interface AcknowledgeParams {
  /** The id of the event that gave the message, which is beside its type and not in its payload. */
  id: string;
}

export interface AgentApproval {
  approval_id: string;
  status: string;
  code: string;
  reason: string;
  dispatch_id: string;
  exchange_id?: string;
  expires_at: string;
  note?: string;
}

export interface AgentApprovalParams {
  /** The approval request. */
  approval_id: string;
}

export interface AgentContact {
  session: string;
  kind: string;
  instance_id?: string;
  user_id?: string;
  org_unit?: string;
  here?: boolean;
}

export interface AgentContacts {
  agent: string;
  contacts: AgentContact[];
}

export type AgentContactsParams = Record<string, never>;

export interface AgentEmitParams {
  /** The hook. */
  hookName: string;
  /** Of message_sending and message_received: sessionKey, content, metadata, dispatchId, disclosure. Of others: any object. */
  data: Record<string, unknown>;
  /** The agent, session, channel and account. */
  context?: HookContextInput;
  /** A name for the call. agent.confirm takes it if no answer came. */
  requestKey?: string;
  /** The caller's process id, if it can use exemptUntil of the answer. */
  process?: number;
}

export interface AgentExchangeParams {
  /** The exchange. */
  exchange_id: string;
}

export interface AgentMessage {
  dispatch_id: string;
  from?: string;
  from_user?: string;
  session: string;
  reply_to: string;
  text: string;
  classification?: string;
  message_type?: string;
  exchange_id?: string;
  exchange_type?: string;
  round?: number;
  max_rounds?: number;
  reply_policy?: string;
  expires_at?: string;
  task_id?: string;
  metadata?: Record<string, unknown>;
}

export interface AgentMessages {
  messages: AgentMessage[];
  cursor?: string;
  more: boolean;
}

export interface AgentNews {
  approval_id?: string;
  status?: string;
  caught?: boolean;
}

export interface AgentReadParams {
  /** The cursor of the page before: its messages leave the inbox. */
  cursor?: string;
  /** At most this many; 20 by default. */
  limit?: number;
  /** Seconds to wait for a message if there is none. */
  wait_s?: number;
}

export interface AgentSendParams {
  /** A session key, or the id of an agent of this daemon. */
  to: string;
  /** The text. */
  text: string;
  /** The exchange that the message continues. */
  exchange_id?: string;
  /** Begins another exchange. */
  new_exchange?: boolean;
  /** The subject of the exchange. */
  exchange_type?: "information_query" | "commitment_request" | "meeting_scheduling";
  /** The level of the text. The text can raise it. */
  classification?: "public" | "internal" | "confidential" | "restricted";
  /** Who may answer. */
  reply_policy?: "agent-ok" | "human-only" | "no-reply-needed";
  /** The task that the message is about. */
  task_id?: string;
  /** The attempt of that task. */
  attempt_id?: string;
  /** A name of the caller's own for this call. A repetition with it is answered like the first. */
  request_key?: string;
}

export interface AgentSent {
  dispatch_id: string;
  status: string;
  approval_id?: string;
  exchange_id?: string;
  round?: number;
  max_rounds?: number;
  code?: string;
  reason?: string;
  audit_id: string;
  replayed?: boolean;
}

export interface AgentStatus {
  id: string;
  instanceId: string;
  app: string;
  connected: boolean;
}

export interface AppEvent {
  appId: string;
  lastSeenAt: number;
  timestamp: number;
}

export interface AppStatus {
  id: string;
  version: string;
  type: string;
  health: string;
  ready: boolean;
  pid: number;
  uid: number;
  lastSeenAt: string;
  capabilities: string[];
  hooks: string[];
  status?: unknown;
}

export interface Approval {
  approvalId: string;
  /** message, escalation, effect, permission or delivery. */
  kind: string;
  taskId?: string;
  state: string;
  code: string;
  reason: string;
  agentId: string;
  agent: string;
  appId: string;
  userId: string;
  sessionKey: string;
  counterparty: string;
  counterpartyUserId: string;
  counterpartyKind?: string;
  counterpartyTenantId?: string;
  target?: string;
  exchangeId: string;
  conversationId: string;
  type: string;
  round: number;
  maxRounds: number;
  classification: string;
  summary: string;
  dispatchId: string;
  askedAt: number;
  expiresAt: number;
  decidedAt?: number;
  /** Every rule that holds the message: first a commitment, then the other rules in their order, last a commitment with the likelihood low. code and reason are those of the first rule. likelihood (high, medium or low) and chance, the estimate in percent, order requests; they are absent if no words hold the message, or if it is a commitment for certain. */
  reasons?: Ground[];
  likelihood?: string;
  likelyBecause?: string;
  chance?: number;
  /** The answer of the operator's model (ocip.judge) about the message. It is no person's word, and apps and agents are not told it. */
  opinion?: Opinion;
  /** false if the message can only be denied, resolved or taken over; blocked has the reason. */
  approvable: boolean;
  blocked?: string;
  needed: number;
  given: number;
  address?: AuditAddress;
  /** Several people read the address. */
  group?: boolean;
  /** Covers sending, the policy revision and the receiver (kind, instance, user, tenant, session, target, channel, account, group). */
  digest: string;
  salt?: string;
  /** The text to sign for each decision. */
  toSign: Record<string, string>;
  signatureRequired: boolean;
  policyApplied: string;
  policyRevision: string;
  content: string;
  contentBytes: number;
  forgotten?: boolean;
  /** The message exactly as it would be sent: content, and metadata with the envelope. */
  sending?: unknown;
  requiresHuman?: boolean;
  media?: MediaItem[];
  /** Parts of other texts: of each file and inline part the beginning (64 KiB of all together), and the surroundings of each finding. at is the beginning in the member's text, of that text's length. For a file, member is "file " and the member of its item in media. */
  extracts?: Extract[];
  detectedKeywords: string[];
  /** The findings, by member (none for content) and bytes. */
  detections: AuditDetection[];
  dataShared: Shared[];
  dataWithheld: Withheld[];
  transcript: Turn[];
  escalation: Escalation | null;
  chain?: Chain;
  escalatedExchange?: string;
  /** The widest bounds of a pre-approval for the exchange; noExchange has the reason if there is none. */
  exchange?: Bounds;
  noExchange?: string;
  approvals: ApprovalDecision[];
  /** The changes since a person last looked: policyRevision, verdict, sending, media, interceptor, and members of the receiver such as address.account. */
  changed: ApprovalChange[];
  decision: ApprovalDecision | null;
  /** For people: the kind by the present configuration, if that differs. */
  counterpartyNow?: string;
  /** Of an approved message that a runtime delivers: ready, claimed, sent, unknown, abandoned or expired. Of an approved effect: ready, sent (a start has used it) or expired. */
  delivery?: string;
  /** Of an effect, for people: title, goal, spec_version, attempt, artifact_revision, artifacts, gates, reviews with their findings, the task's other effects, planned {by, at, late}, and left_out, which counts what was cut. The digest covers it. */
  context?: unknown;
  /** Of an effect, for people: the request_digest of task.run_effect. digest covers it. */
  requestDigest?: string;
}

export interface ApprovalChange {
  field: string;
  was: string;
  now: string;
}

export interface ApprovalDecision {
  decision: string;
  by: string;
  uid: number;
  note?: string;
  at: number;
  fingerprint?: string;
  signature?: string;
  exchange?: Bounds;
  /** console if a page called for a person. */
  via?: string;
  /** The process that asked, such as the browser. */
  client?: ClientProcess;
  /** none if the decision was a click (console.decide: session), judge if the operator's model took it (ocip.judge.may: release). */
  proof?: string;
}

export interface ApprovalListParams {
  /** The state; pending by default. */
  state?: "pending" | "approved" | "denied" | "taken_over" | "resolved" | "expired" | "request_changes" | "revoked" | "all";
  /** An agent's id or instance id. */
  agent?: string;
  /** At most this many; 1,000 by default. */
  limit?: number;
  /** The last request of the page before. */
  after?: string;
}

export interface ApprovalListResult {
  approvals: unknown[];
  total: number;
  /** Rows that something else than the daemon changed: the list leaves out what needs them. */
  altered?: string[];
}

export interface ApprovalNews {
  approval?: ApprovalSummary;
  caught?: boolean;
  /** Rows that something else than the daemon changed: the list leaves out what needs them. */
  altered?: string[];
}

export interface ApprovalOutcome {
  approvalId: string;
  dispatchId: string;
  resolution: string;
  note?: string;
  data?: unknown;
  timestamp: number;
}

export interface ApprovalParams {
  /** The approval request. */
  approvalId: string;
}

export interface ApprovalResolveParams {
  /** The approval request. */
  approvalId: string;
  /** The decision. */
  decision: "approve" | "deny" | "takeover" | "resolve" | "request_changes";
  /** The digest of what the person saw. Required to approve and to take over. */
  digest?: string;
  /** A note for the record. */
  note?: string;
  /** The text that a person who takes over sends instead; the message as it is if it is empty. */
  content?: string;
  /** With approve: what is approved of the rest of the exchange, within the offered bounds. */
  exchange?: BoundsInput;
  /** An armored SSH signature over the decision. */
  signature?: string;
}

export interface ApprovalResolveResult {
  state: string;
  dispatchId: string;
  needed: number;
  given: number;
  auditSeq: number;
  grantId?: string;
}

export interface ApprovalSummary {
  approvalId: string;
  /** message, escalation, effect, permission or delivery. */
  kind: string;
  taskId?: string;
  state: string;
  code: string;
  reason: string;
  agentId: string;
  agent: string;
  appId: string;
  userId: string;
  sessionKey: string;
  counterparty: string;
  counterpartyUserId: string;
  counterpartyKind?: string;
  counterpartyTenantId?: string;
  target?: string;
  exchangeId: string;
  conversationId: string;
  type: string;
  round: number;
  maxRounds: number;
  classification: string;
  summary: string;
  dispatchId: string;
  askedAt: number;
  expiresAt: number;
  decidedAt?: number;
  /** Every rule that holds the message: first a commitment, then the other rules in their order, last a commitment with the likelihood low. code and reason are those of the first rule. likelihood (high, medium or low) and chance, the estimate in percent, order requests; they are absent if no words hold the message, or if it is a commitment for certain. */
  reasons?: Ground[];
  likelihood?: string;
  likelyBecause?: string;
  chance?: number;
  /** The answer of the operator's model (ocip.judge) about the message. It is no person's word, and apps and agents are not told it. */
  opinion?: Opinion;
  /** false if the message can only be denied, resolved or taken over; blocked has the reason. */
  approvable: boolean;
  blocked?: string;
  needed: number;
  given: number;
}

export interface AuditAddress {
  channel?: string;
  account?: string;
  target?: string;
}

export interface AuditDetection {
  rule: string;
  member?: string;
  start: number;
  end: number;
  zone?: string;
  shadow?: boolean;
}

export interface AuditFault {
  seq: number;
  problem: string;
}

export interface AuditForgetParams {
  /** The tenant; an empty text is what belongs to none. */
  tenant: string;
}

export interface AuditForgetResult {
  tenant: string;
  auditSeq: number;
}

export interface AuditHead {
  seq: number;
  time: string;
  hash: string;
}

export interface AuditInspectParams {
  /** A record to give, with its receipt. */
  seq?: number;
  /** A number of records: the root of the tree over them. */
  size?: number;
  /** A smaller number of records: the path that shows that they begin those of size. */
  old?: number;
}

export interface AuditInspection {
  database: string;
  last: number;
  checkpointSeq?: number;
  checkpoint?: string;
  key?: string;
  tombstone?: string;
  /** The last record. */
  tail?: AuditHead;
  fault?: string;
  line?: string;
  receipt?: string;
  root?: string;
  path?: string[];
}

export interface AuditQueryParams {
  /** Which records. */
  filter?: {
    since?: string;
    until?: string;
    text?: string;
    record?: string;
    actionType?: string;
    event?: string;
    side?: string;
    tenant?: string;
    user?: string;
    agent?: string;
    app?: string;
    counterparty?: string;
    session?: string;
    channel?: string;
    exchange?: string;
    conversation?: string;
    chain?: string;
    rule?: string;
    result?: string;
    code?: string;
    dispatch?: string;
    run?: string;
    approval?: string;
    task?: string;
  };
  /** At most this many; 100 by default. */
  limit?: number;
  /** nextBefore of the page before. */
  before?: number;
}

export interface AuditQueryResult {
  records: unknown[];
  nextBefore: number;
}

export interface AuditRetireParams {
  /** Segments that end before this time go. */
  before: string;
}

export interface AuditRetireResult {
  retired: number;
  segments: number;
  auditSeq: number;
}

export interface AuditRotateKeyResult {
  verifier: string;
  previous: string;
  auditSeq: number;
}

export interface AuditStats {
  since: string;
  until: string;
  bucket: number;
  verdicts: AuditVerdicts;
  buckets: AuditStatsBucket[];
  agents: AuditStatsRow[];
  agentCount: number;
  rules: AuditStatsRow[];
  ruleCount: number;
  codes: AuditStatsRow[];
  codeCount: number;
  pairs?: AuditStatsPair[];
  pairCount?: number;
  kindTimes?: AuditStatsTime[];
  ruleTimes?: AuditStatsTime[];
}

export interface AuditStatsBucket {
  start: string;
  allow: number;
  deny: number;
  requireApproval: number;
  none: number;
}

export interface AuditStatsPair {
  from: string;
  to?: string;
  kind: string;
  sent: number;
  held: number;
  refused: number;
  wall: number;
}

export interface AuditStatsParams {
  /** The first time; that of the first record by default. */
  since?: string;
  /** The last time; now by default. */
  until?: string;
  /** The length of a bucket in seconds, in whole minutes; chosen by the daemon if absent. */
  bucket?: number;
  /** Adds the messages of each pair of sender and receiver, the most frequent 1000. */
  pairs?: boolean;
}

export interface AuditStatsRow {
  name: string;
  allow: number;
  deny: number;
  requireApproval: number;
  none: number;
}

export interface AuditStatsTime {
  name: string;
  decided: number;
  p50: number;
  p90: number;
}

export interface AuditStatus {
  seq: number;
  time: string;
  hash: string;
  mirrored: number;
  log: string;
  signed: number;
  retired: number;
  indexed: number;
  unsigned?: UnsignedRecords;
  damaged?: string;
  fault?: string;
  mirror: MirrorStatus;
}

export interface AuditTailParams {
  /** Which records. */
  filter?: {
    since?: string;
    until?: string;
    text?: string;
    record?: string;
    actionType?: string;
    event?: string;
    side?: string;
    tenant?: string;
    user?: string;
    agent?: string;
    app?: string;
    counterparty?: string;
    session?: string;
    channel?: string;
    exchange?: string;
    conversation?: string;
    chain?: string;
    rule?: string;
    result?: string;
    code?: string;
    dispatch?: string;
    run?: string;
    approval?: string;
    task?: string;
  };
  /** Begins after this record. */
  after?: number;
  /** Begins with so many records that are there, if after is absent. */
  last?: number;
  /** Goes on with new records. */
  follow?: boolean;
  /** New records come together, at most once in so many milliseconds. */
  gatherMs?: number;
  /** The records are exported; the daemon records that first. */
  export?: boolean;
}

export interface AuditVerdicts {
  allow: number;
  deny: number;
  requireApproval: number;
  none: number;
}

export interface AuditVerifyResult {
  ok: boolean;
  log: string;
  verifier: string;
  seq: number;
  hash: string;
  retired: number;
  signed: number;
  checkpoints: number;
  held: number;
  heldUpTo?: number;
  late?: number;
  gaps?: number;
  fault?: AuditFault;
}

export interface BackupNoteParams {
  /** The folder of the copy. */
  directory: string;
}

export interface Beat {
  version: string;
  roster: number;
  checkpoint?: string;
  waiting: number;
  held: number;
  oldestHeld?: string;
  attached?: string;
  faults?: string[];
}

export interface Bounds {
  /** Keywords and families of cues that a message may have. */
  words: string[];
  /** The highest level. */
  classification: string;
  /** The last round of the exchange. */
  maxRound?: number;
  /** The end, in Unix milliseconds. */
  until: number;
}

export interface BoundsInput {
  /** Keywords and families of cues that a message may have. */
  words: string[];
  /** The highest level. */
  classification: "public" | "internal" | "confidential" | "restricted";
  /** The last round of the exchange. */
  maxRound?: number;
  /** The end, in Unix milliseconds. */
  until: number;
}

export interface CancelParams {
  /** The request that opened the stream. */
  requestId: string;
}

export interface Capabilities {
  /** Channels. */
  channels?: Provides;
  /** Tools. */
  tools?: Provides;
  /** Providers. */
  providers?: Provides;
  /** Hooks. */
  hooks?: HookDeclaration;
  /** Gateway methods and routes. */
  gateway?: GatewayProvides;
  /** Whether the app redeems what was approved (approval.redeem). */
  redeem?: boolean;
  /** Whether the app acknowledges each message (app.acknowledge). Otherwise a message counts as delivered once the app has read it. */
  acknowledges?: boolean;
}

export interface CapabilityParams {
  /** channel, tool, hook, gateway_method, http_route or provider. The result refuses others. */
  type?: string;
  /** The capability. Its id is in channelId, toolId, event, methodName, route or providerId, by the type. */
  config?: Record<string, unknown>;
}

export interface CapabilityResult {
  capabilityId: string;
  granted: boolean;
  reason?: string;
}

export interface Chain {
  id: string;
  hops: number;
  path: string[];
  startedAt: string;
  ownTurn?: boolean;
}

export interface Challenge {
  signatureRequired: boolean;
  /** For the next signed call on this connection. A second challenge replaces it, and each call uses it up, also one without a valid signature. */
  nonce?: string;
}

export interface ChallengeParams {
  /** The method that is called next. */
  method: string;
}

export interface CheckResult {
  result: string;
  code?: string;
  reason: string;
  reasons?: Ground[];
  rule?: string;
  classification: string;
  type?: string;
  round?: number;
  maxRounds?: number;
  /** The findings, by member (none for content) and bytes. */
  detections?: AuditDetection[];
  auditId: string;
}

export interface ClientProcess {
  pid: number;
  uid: number;
  exe?: string;
}

export interface CompleteParams {
  /** The run. */
  runId: string;
  /** Whether it succeeded. */
  success?: boolean;
  /** The error if it failed. */
  error?: string;
}

export interface ConfigChange {
  path: string;
  oldValue: unknown;
  newValue: unknown;
}

export interface ConfigDiffResult {
  file: string;
  changeCount: number;
  changes: ConfigDifference[];
  pendingRestart: ConfigDifference[];
  overridden: ConfigOverride[];
  policyRevision: string;
  policyChanged: boolean;
}

export interface ConfigDifference {
  key: string;
  was: unknown;
  now: unknown;
}

export interface ConfigGetParams {
  /** A path such as channels.telegram; all that the app may read if it is absent. */
  path?: string;
}

export interface ConfigOverride {
  key: string;
  by: string;
}

export interface ConfigReload {
  changeCount: number;
  /** The first 64 values that differ, secrets as ***. List entries have their names as keys (agents.alice.max_rounds), so a moved entry is no change. */
  changes: ConfigDifference[];
  /** Changed keys that take a restart. */
  pendingRestart: string[];
  inForceSince?: string;
  by?: string;
  last?: ConfigDifference[];
}

export interface ConfigStatus {
  refusedAt?: string;
  refusal?: string;
  faults?: PolicyFault[];
}

export interface ConfigValue {
  value: unknown;
}

export interface ConfigWatchParams {
  /** Paths; all that the app may read if there are none. */
  paths?: string[];
}

export interface ConfirmParams {
  /** The claim from redeeming. */
  claim?: string;
  /** The message that hook.emit allowed. */
  dispatchId?: string;
  /** The key of an agent.emit whose answer did not come. */
  requestKey?: string;
  /** What became of the message. */
  outcome: "sent" | "not_sent" | "unknown";
  /** A note for the record. */
  note?: string;
}

export interface ConsoleReportParams {
  /** The event. */
  event: "opened" | "enrolled" | "link_reused" | "host_refused" | "origin_refused" | "session_refused" | "peer_refused";
  /** The process at the other end, as pid@start. */
  process?: string;
  /** peer_refused: the user of the connection, if the system says it. */
  uid?: number;
  /** host_refused, origin_refused: the refused Host or Origin. */
  value?: string;
  /** enrolled: the digest of the list of signers. */
  digest?: string;
  /** enrolled: the fingerprint of the passkey. */
  fingerprint?: string;
}

export interface Contact {
  sessionKey: string;
  agent: string;
  lastActiveAt: string;
  messageCount: number;
  kind: string;
  instanceId?: string;
  userId?: string;
  tenantId?: string;
  /** Several people read the session. */
  group?: boolean;
  /** Known from an envelope and not from the configuration. */
  learned?: boolean;
  /** With several tenants, those whose agents got the envelope; * is unknown, from an older version of ocipd. */
  seenBy?: string[];
}

export interface ContactForgetParams {
  /** The session. */
  sessionKey: string;
  /** A note for the record. */
  note?: string;
}

export interface ContactForgetResult {
  changed: boolean;
  instanceId?: string;
  tenantId?: string;
  auditSeq?: number;
}

export interface ContactListParams {
  /** Sessions of this agent. */
  agent?: string;
  /** Sessions of this channel. */
  channel?: string;
  /** At most this many; 100 by default. */
  limit?: number;
  /** Skip this many. */
  offset?: number;
}

export interface ContactListResult {
  contacts: Contact[];
  total: number;
  /** Rows that something else than the daemon changed: the list leaves out what needs them. */
  altered?: string[];
}

export interface Description {
  protocolVersion: string;
  version: string;
  methods: MethodDescription[];
}

export interface DispatchParams {
  /** The session that the message goes to. */
  sessionKey: string;
  /** The text. Required unless metadata names media. */
  content?: string;
  /** Members for the receiver; some are hints to the daemon. */
  metadata?: Record<string, unknown>;
}

export interface DispatchResult {
  /** The message's id, the same in its record, its delivery and each repetition of it. */
  dispatchId: string;
  /** true for every accepted message, also a held one: a client of the stock SDK repeats a message with false. */
  queued: boolean;
  /** The message is on disk and not yet with its receiver, because the app is away, not ready, or has others to read first. */
  waiting?: boolean;
  /** The host of the fleet on which the receiver is. The message is on its way there; message:receipt tells what that host has decided. */
  host?: string;
  /** A person decides. The caller must not send the message again; the same call gets the same approvalId. */
  held?: boolean;
  approvalId?: string;
  ocip?: ExchangeRef;
}

export interface DroppedMessage {
  dispatchId: string;
  queue: string;
  auditSeq: number;
  /** The reader may have acted on the message: it had it when its connection ended. The daemon does not know that for deliveries before its last start. */
  given?: boolean;
}

export interface EmitParams {
  /** The hook. */
  hookName: string;
  /** Of message_sending and message_received: sessionKey, content, metadata, dispatchId, disclosure. Of others: any object. */
  data: Record<string, unknown>;
  /** The agent, session, channel and account. */
  context?: HookContextInput;
}

export interface EmitResult {
  allowed: boolean;
  data?: unknown;
  reason?: string;
  ocip?: unknown;
  held?: boolean;
  approvalId?: string;
  exemptUntil?: number;
}

export type Empty = Record<string, unknown>;

export type EmptyInput = Record<string, unknown>;

/** The codes of errors. */
export type ErrorCode = "UNKNOWN_ERROR" | "INVALID_REQUEST" | "METHOD_NOT_FOUND" | "INVALID_PARAMS" | "INTERNAL_ERROR" | "UNAUTHORIZED" | "FORBIDDEN" | "NOT_FOUND" | "CONFLICT" | "TIMEOUT" | "APP_NOT_REGISTERED" | "CAPABILITY_DENIED" | "HOOK_NOT_SUBSCRIBED" | "CONNECTION_CLOSED";

export interface Escalation {
  exchangeId: string;
  conversationId: string;
  currentRound: number;
  maxRounds: number;
  conversationSummary: string;
  reason: string;
}

/** Something that the daemon tells an app by itself. */
export interface EventMessage {
  id: string;
  type: "event";
  /** Unix milliseconds. */
  timestamp: number;
  event: keyof Events;
  payload: unknown;
}

/** The events: the payload of each. */
export interface Events {
  "app:unhealthy": AppEvent;
  "app:healthy": AppEvent;
  "app:left": AppEvent;
  "app:lost": AppEvent;
  "kernel:lagging": LaggingEvent;
  "kernel:resumed": Empty;
  "approval:resolved": ApprovalOutcome;
  "message:receipt": MessageReceipt;
  "hook:message_received": HookEvent & {
    data: Inbound;
  };
  "hook:message_sending": HookEvent & {
    data: Message;
  };
  "hook:agent_starting": HookEvent & {
    data: RunStarting | Record<string, unknown>;
  };
  "hook:agent_completed": HookEvent & {
    data: RunCompleted | Record<string, unknown>;
  };
  "hook:tool_executing": HookEvent & {
    data: ToolUse;
  };
  "hook:tool_completed": HookEvent & {
    data: ToolUse;
  };
  "hook:message_sent": HookEvent & {
    data: Message;
  };
  "hook:session_start": HookEvent & {
    data: SessionStarted | Record<string, unknown>;
  };
  "hook:session_end": HookEvent & {
    data: Record<string, unknown>;
  };
  "hook:after_tool_call": HookEvent & {
    data: ToolUse;
  };
  "hook:agent_end": HookEvent & {
    data: RunCompleted | Record<string, unknown>;
  };
  "hook:before_agent_start": HookEvent & {
    data: RunStarting | Record<string, unknown>;
  };
  "hook:before_tool_call": HookEvent & {
    data: ToolUse;
  };
}

export interface Exchange {
  exchangeId: string;
  conversationId: string;
  type: string;
  agent: string;
  counterparty: string;
  sessionKey: string;
  outcome: string;
  /** A digest of the sides (outcome, round, time of the last change), the held requests, and the stop of the two agents. Every message, decision and settlement changes it. */
  state?: string;
  /** A person has to settle the exchange: a request is pending, or its rounds are used up and nobody has settled that. */
  pending?: boolean;
  currentRound: number;
  maxRounds: number;
  classification: string;
  openedAt: number;
  updatedAt: number;
  expiresAt: number;
  transcript: Turn[];
  dataShared: Shared[];
  dataWithheld: Withheld[];
}

export interface ExchangeListParams {
  /** An agent's instance id. */
  agent?: string;
  /** The other agent's instance id. */
  counterparty?: string;
  /** The outcome. */
  outcome?: string;
  /** At most this many; 100 by default. */
  limit?: number;
  /** The last exchange of the page before. */
  before?: string;
}

export interface ExchangeParams {
  /** The exchange. */
  exchangeId: string;
}

export interface ExchangeRef {
  /** Present if the counterparty is an agent. */
  exchangeId?: string;
  conversationId: string;
  round: number;
  maxRounds: number;
  /** The id of the decision's record (ocipd audit query --record ID). */
  auditId: string;
  code?: string;
  reason?: string;
  reasons?: Ground[];
  requiresHuman?: boolean;
  detectedKeywords?: string[];
  escalation?: Escalation;
  escalatedExchange?: string;
  blocked?: string;
  chain?: Chain;
}

export interface ExchangeResolveParams {
  /** The exchange. */
  exchangeId: string;
  /** An agent's instance id, if several pairs of agents use the id. */
  agent?: string;
  /** The outcome. */
  outcome: "resolved";
  /** A note for the record. */
  note?: string;
  /** The state that the person saw, from exchange.get. Required if decisions are signed. */
  state?: string;
  /** An armored SSH signature over the settlement. */
  signature?: string;
}

export interface ExchangeResult {
  exchanges: Exchange[];
  /** Rows that something else than the daemon changed: the list leaves out what needs them. */
  altered?: string[];
}

export interface Extract {
  member: string;
  at: number;
  of: number;
  text: string;
}

export type FleetAttachParams = Record<string, never>;

export interface FleetBringParams {
  /** The frame, in base64: at most 512 KiB. */
  frame: string;
}

export interface FleetBringResult {
  receipt?: FleetFrame;
  waits?: boolean;
  next?: number;
}

export interface FleetFrame {
  to: string;
  toEpoch: number;
  kind: string;
  seq: number;
  frame: string;
}

export interface FleetHost {
  host: string;
  epoch: number;
  agents: string[];
  waiting: number;
  heard?: string;
  mailbox?: string;
  refused?: number;
  beat?: Beat;
  beatAt?: string;
  silent?: boolean;
  shrunk?: Shrunk;
}

export interface FleetStatus {
  tenant: string;
  host: string;
  version: number;
  digest: string;
  member: boolean;
  lines: number;
  hosts: FleetHost[];
}

export interface GatewayProvides {
  /** Gateway methods. */
  methods?: string[];
  /** HTTP routes. */
  httpRoutes?: string[];
}

export interface Grant {
  grantId: string;
  kind: string;
  /** in_force, revoked, expired, used_up, or over if the exchange has ended. */
  state: string;
  agent: string;
  receiver: string;
  exchangeId?: string;
  conversationId?: string;
  approvalId?: string;
  /** Keywords and families of cues that a message may have. */
  words: string[];
  /** The highest level. */
  classification: string;
  /** The last round of the exchange. */
  maxRound?: number;
  /** The end, in Unix milliseconds. */
  until: number;
  uses: number;
  maxUses?: number;
  madeAt: number;
  people: ApprovalDecision[];
}

export interface GrantAddParams {
  /** An id of the person's choice, good once. */
  grantId: string;
  /** The sender's instance id. */
  agent: string;
  /** An instance id or a session key. */
  receiver: string;
  /** Keywords and families of cues that a message may have. */
  words: string[];
  /** The highest level. */
  classification: "public" | "internal" | "confidential" | "restricted";
  /** The last round of the exchange. */
  maxRound?: number;
  /** The end, in Unix milliseconds. */
  until: number;
  /** How many messages it lets pass. */
  maxUses?: number;
  /** The restored of grant.list. */
  restored?: string;
  /** A note for the record. */
  note?: string;
  /** An armored SSH signature over the pre-approval. */
  signature: string;
}

export interface GrantAddResult {
  grant: Grant;
  auditSeq: number;
}

export interface GrantListParams {
  /** The sender's id or instance id. */
  agent?: string;
  /** The kind. */
  kind?: "exchange" | "standing";
  /** Also those that are not in force. */
  all?: boolean;
  /** At most this many; 1,000 by default. */
  limit?: number;
  /** next of the page before. */
  after?: string;
}

export interface GrantListResult {
  grants: Grant[];
  next?: string;
  /** The id of the newest state_restored record. */
  restored?: string;
}

export interface GrantRevokeParams {
  /** The pre-approval. */
  grantId: string;
  /** A note for the record. */
  note?: string;
}

export interface GrantRevokeResult {
  changed: boolean;
  auditSeq?: number;
}

export interface Ground {
  code: string;
  rule: string;
  reason: string;
  likelihood?: string;
  likelyBecause?: string;
  chance?: number;
  open?: boolean;
}

export interface HeartbeatParams {
  /** Shown to operators. */
  status?: Record<string, unknown>;
}

export interface HeartbeatResult {
  ok: boolean;
  serverTime: number;
}

export interface HookContext {
  /** The agent. */
  agentId?: string;
  /** The session. */
  sessionKey?: string;
  /** The channel. */
  channelId?: string;
  /** The account. */
  accountId?: string;
  /** Unix milliseconds. The daemon sets it. */
  timestamp: number;
  /** The id of the decision's record. The daemon sets it. */
  auditId?: string;
}

export interface HookContextInput {
  /** The agent. */
  agentId?: string;
  /** The session. */
  sessionKey?: string;
  /** The channel. */
  channelId?: string;
  /** The account. */
  accountId?: string;
  /** Unix milliseconds. The daemon sets it. */
  timestamp?: number;
  /** The id of the decision's record. The daemon sets it. */
  auditId?: string;
}

export interface HookDeclaration {
  /** Hooks that the app observes. */
  subscribes?: string[];
  /** Hooks that the app intercepts. */
  intercepts?: string[];
}

export interface HookEvent {
  eventId: string;
  hookName: string;
  data: unknown;
  context: HookContext;
}

export interface HookResultParams {
  /** The id of the event that is answered. */
  eventId: string;
  /** Of an interceptor: an object, whose content and metadata take the place of the message's, or {block: true, reason}; null or none blocks. Of a receiver: {delivered, error}. */
  result?: unknown;
}

export interface HooksParams {
  /** Names of hooks. */
  events: string[];
}

export interface Inbound {
  runId: string;
  sessionKey: string;
  replyTo?: string;
  content: string;
  metadata?: Record<string, unknown>;
  dispatchId?: string;
}

export interface JudgeParams {
  /** The approval request. */
  approvalId: string;
  /** The digest of the request that the model was shown. */
  digest: string;
  /** The model, as ocip.judge names it. */
  model: string;
  /** The digest of the question; it has to be the daemon's. */
  promptDigest: string;
  /** The model's answer, byte for byte. */
  answer: string;
}

export interface JudgeResult {
  state: string;
  /** true if the answer released the message. */
  released: boolean;
  /** The record's number. */
  auditSeq: number;
}

export interface KeptMessage {
  dispatchId: string;
  reason: string;
}

export interface LaggingEvent {
  reason: string;
}

export interface LatencyStatus {
  decisions: number;
  decisionP50Us: number;
  decisionP99Us: number;
  commitP50Us: number;
  commitP99Us: number;
}

export interface Manifest {
  /** A package name such as @acme/telegram. */
  id: string;
  /** A name for people. */
  name: string;
  /** A semantic version. */
  version: string;
  /** The kind of package. */
  type: "app" | "skill" | "agent" | "extension";
  /** The file that runs. Required unless the type is agent. */
  main?: string;
  /** The model of the app's agent, as the app says. No decision depends on it. */
  model?: string;
  /** The protocol that the app speaks. */
  protocol?: ManifestProtocol;
  /** What the app provides and wants. Nothing beyond it is granted. */
  capabilities?: Capabilities;
}

export interface ManifestProtocol {
  /** The version, with the major number 1. */
  version: string;
}

export interface MediaItem {
  member: string;
  url?: string;
  path?: string;
  sha256?: string;
  bytes?: number;
}

export interface Message {
  channelId?: string;
  target?: string;
  content: string;
  metadata?: Record<string, unknown>;
  dispatchId?: string;
}

export interface MessageReceipt {
  dispatchId: string;
  sessionKey: string;
  host: string;
  result: string;
  code?: string;
  reason?: string;
  log: string;
  record: number;
  hash?: string;
  timestamp: number;
}

export interface MethodDescription {
  name: string;
  access: string;
  stream: boolean;
  opening?: unknown;
  params: unknown;
  result: unknown;
}

export interface MethodEntry {
  name: string;
  access: string;
  pace: string;
  signing?: string;
}

export interface MethodList {
  methods: MethodEntry[];
}

/** The methods: what each takes and gives. */
export interface Methods {
  "task.attach": {
    params: TaskAttachParams;
    result: TaskAttached;
  };
  "task.create": {
    params: TaskCreateParams;
    result: TaskCreated;
  };
  "task.get": {
    params: TaskGetParams;
    result: TaskView;
  };
  "task.transition": {
    params: TaskTransitionParams;
    result: TaskChanged;
  };
  "task.start_attempt": {
    params: TaskStartAttemptParams;
    result: TaskAttemptStarted;
  };
  "task.record_checkpoint": {
    params: TaskCheckpointParams;
    result: TaskCheckpointed;
  };
  "task.record_artifact": {
    params: TaskArtifactParams;
    result: TaskArtifactRecorded;
  };
  "task.append_review": {
    params: TaskReviewParams;
    result: TaskReviewed;
  };
  "task.request_approval": {
    params: TaskRequestApprovalParams;
    result: TaskApprovalRequested;
  };
  "task.resolve_approval": {
    params: TaskResolveApprovalParams;
    result: TaskApprovalResolved;
  };
  "task.open_circuit": {
    params: TaskOpenCircuitParams;
    result: TaskChanged;
  };
  "task.list_ready": {
    params: TaskListReadyParams;
    result: TaskList;
  };
  "task.claim": {
    params: TaskClaimParams;
    result: TaskClaimed;
  };
  "task.update": {
    params: TaskUpdateParams;
    result: TaskUpdated;
  };
  "task.finish_attempt": {
    params: TaskFinishAttemptParams;
    result: TaskAttemptFinished;
  };
  "task.plan_effect": {
    params: TaskPlanEffectParams;
    result: TaskEffectPlanned;
  };
  "task.run_effect": {
    params: TaskRunEffectParams;
    result: TaskEffectRun;
  };
  "task.finish_effect": {
    params: TaskFinishEffectParams;
    result: TaskEffectState;
  };
  "task.settle_effect": {
    params: TaskSettleEffectParams;
    result: TaskEffectState;
  };
  "task.kill_effect": {
    params: TaskKillEffectParams;
    result: TaskEffectState;
  };
  "task.cancel_effect": {
    params: TaskCancelEffectParams;
    result: TaskEffectState;
  };
  "task.close_circuit": {
    params: TaskCloseCircuitParams;
    result: TaskChanged;
  };
  "task.ask_permission": {
    params: TaskAskPermissionParams;
    result: TaskPermission;
  };
  "task.grant": {
    params: TaskGrantParams;
    result: TaskGranted;
  };
  "task.revoke_grant": {
    params: TaskRevokeGrantParams;
    result: TaskChanged;
  };
  "task.grants": {
    params: TaskGrantsParams;
    result: TaskGrants;
  };
  "task.list": {
    params: TaskListParams;
    result: TaskList;
  };
  "task.import": {
    params: TaskImportParams;
    result: TaskCreated;
  };
  "task.watch": {
    params: TaskWatchParams;
    result: TaskNews;
    stream: true;
  };
  "runner.attach": {
    params: RunnerAttachParams;
    result: RunnerChunk;
    stream: true;
  };
  "runner.report": {
    params: RunnerReportParams;
    result: OK;
  };
  "app.register": {
    params: RegisterParams;
    result: RegisterResult;
  };
  "app.heartbeat": {
    params: HeartbeatParams;
    result: HeartbeatResult;
  };
  "app.ready": {
    params: ReadyParams;
    result: OK;
  };
  "app.acknowledge": {
    params: AcknowledgeParams;
    result: OK;
  };
  "app.shutdown": {
    params: ShutdownParams;
    result: OK;
  };
  "capability.register": {
    params: CapabilityParams;
    result: CapabilityResult;
  };
  "capability.unregister": {
    params: UnregisterParams;
    result: OK;
  };
  "hook.subscribe": {
    params: HooksParams;
    result: SubscribeResult;
  };
  "hook.unsubscribe": {
    params: HooksParams;
    result: UnsubscribeResult;
  };
  "hook.result": {
    params: HookResultParams;
    result: OK;
  };
  "config.get": {
    params: ConfigGetParams;
    result: ConfigValue;
  };
  "config.watch": {
    params: ConfigWatchParams;
    result: ConfigChange;
    opening: Watching;
    stream: true;
  };
  "session.get": {
    params: SessionGetParams;
    result: SessionResult;
  };
  "session.list": {
    params: SessionListParams;
    result: SessionListResult;
  };
  "message.dispatch": {
    params: DispatchParams;
    result: DispatchResult;
  };
  "agent.queue": {
    params: QueueParams;
    result: QueueResult;
  };
  "agent.complete": {
    params: CompleteParams;
    result: OK;
  };
  "hook.emit": {
    params: EmitParams;
    result: EmitResult;
  };
  "exchange.get": {
    params: ExchangeParams;
    result: ExchangeResult;
  };
  "exchange.list": {
    params: ExchangeListParams;
    result: ExchangeResult;
  };
  "exchange.resolve": {
    params: ExchangeResolveParams;
    result: OK;
  };
  "approval.get": {
    params: ApprovalParams;
    result: Approval;
  };
  "approval.redeem": {
    params: RedeemParams;
    result: Redeemed;
  };
  "approval.confirm": {
    params: ConfirmParams;
    result: OK;
  };
  "approval.redeemable": {
    params: EmptyInput;
    result: RedeemableResult;
  };
  "approval.withdraw": {
    params: WithdrawParams;
    result: OK;
  };
  "agent.send": {
    params: AgentSendParams;
    result: AgentSent;
  };
  "agent.read": {
    params: AgentReadParams;
    result: AgentMessages;
  };
  "agent.contacts": {
    params: AgentContactsParams;
    result: AgentContacts;
  };
  "agent.exchange": {
    params: AgentExchangeParams;
    result: ExchangeResult;
  };
  "agent.approval": {
    params: AgentApprovalParams;
    result: AgentApproval;
  };
  "agent.emit": {
    params: AgentEmitParams;
    result: EmitResult;
  };
  "agent.redeem": {
    params: RedeemParams;
    result: Redeemed;
  };
  "agent.confirm": {
    params: ConfirmParams;
    result: OK;
  };
  "agent.redeemable": {
    params: EmptyInput;
    result: RedeemableResult;
  };
  "agent.withdraw": {
    params: WithdrawParams;
    result: OK;
  };
  "agent.watch": {
    params: EmptyInput;
    result: AgentNews;
    opening: Watching;
    stream: true;
  };
  "stream.cancel": {
    params: CancelParams;
    result: OK;
  };
  "kernel.describe": {
    params: EmptyInput;
    result: Description;
  };
  "operator.challenge": {
    params: ChallengeParams;
    result: Challenge;
  };
  "kernel.methods": {
    params: EmptyInput;
    result: MethodList;
  };
  "kernel.status": {
    params: EmptyInput;
    result: Status;
  };
  "audit.query": {
    params: AuditQueryParams;
    result: AuditQueryResult;
  };
  "audit.stats": {
    params: AuditStatsParams;
    result: AuditStats;
  };
  "audit.tail": {
    params: AuditTailParams;
    result: unknown;
    stream: true;
  };
  "peer.check": {
    params: PeerCheckParams;
    result: PeerCheckResult;
  };
  "console.report": {
    params: ConsoleReportParams;
    result: OK;
  };
  "backup.note": {
    params: BackupNoteParams;
    result: OK;
  };
  "audit.verify": {
    params: EmptyInput;
    result: AuditVerifyResult;
  };
  "audit.inspect": {
    params: AuditInspectParams;
    result: AuditInspection;
  };
  "store.snapshot": {
    params: EmptyInput;
    result: StoreSnapshot;
    stream: true;
  };
  "approval.list": {
    params: ApprovalListParams;
    result: ApprovalListResult;
  };
  "approval.resolve": {
    params: ApprovalResolveParams;
    result: ApprovalResolveResult;
  };
  "approval.watch": {
    params: EmptyInput;
    result: ApprovalNews;
    stream: true;
  };
  "approval.judge": {
    params: JudgeParams;
    result: JudgeResult;
  };
  "sending.message": {
    params: SendParams;
    result: DispatchResult;
  };
  "sending.check": {
    params: SendParams;
    result: CheckResult;
  };
  "grant.list": {
    params: GrantListParams;
    result: GrantListResult;
  };
  "grant.add": {
    params: GrantAddParams;
    result: GrantAddResult;
  };
  "grant.revoke": {
    params: GrantRevokeParams;
    result: GrantRevokeResult;
  };
  "sending.pause": {
    params: PauseParams;
    result: PauseResult;
  };
  "sending.resume": {
    params: PauseParams;
    result: PauseResult;
  };
  "queue.list": {
    params: QueueListParams;
    result: QueueListResult;
  };
  "queue.drop": {
    params: QueueDropParams;
    result: QueueDropResult;
  };
  "contact.list": {
    params: ContactListParams;
    result: ContactListResult;
  };
  "contact.forget": {
    params: ContactForgetParams;
    result: ContactForgetResult;
  };
  "policy.reload": {
    params: EmptyInput;
    result: PolicyReloadResult;
  };
  "config.diff": {
    params: EmptyInput;
    result: ConfigDiffResult;
  };
  "audit.forget": {
    params: AuditForgetParams;
    result: AuditForgetResult;
  };
  "audit.rotate_key": {
    params: EmptyInput;
    result: AuditRotateKeyResult;
  };
  "audit.retire": {
    params: AuditRetireParams;
    result: AuditRetireResult;
  };
  "fleet.attach": {
    params: FleetAttachParams;
    result: FleetFrame;
    stream: true;
  };
  "fleet.bring": {
    params: FleetBringParams;
    result: FleetBringResult;
  };
  "fleet.status": {
    params: EmptyInput;
    result: FleetStatus;
  };
  "debug.profile": {
    params: ProfileParams;
    result: ProfileChunk;
    stream: true;
  };
}

export interface MirrorStatus {
  segments: number;
  pending: number;
  segmentBytes: number;
  problems?: string[];
}

export interface OK {
  ok: boolean;
  reason?: string;
}

export interface Opinion {
  commits: boolean;
  reason: string;
  model: string;
  promptDigest: string;
  at: number;
}

export interface PauseParams {
  /** The agent's id or instance id. */
  agent?: string;
  /** The channel. All is meant if neither is given. */
  channel?: string;
  /** A note for the record. */
  note?: string;
}

export interface PauseResult {
  changed: boolean;
  paused: PausedScope[];
  auditSeq?: number;
}

export interface PausedScope {
  scope: string;
  agent?: string;
  channel?: string;
  since: string;
  by: string;
}

export interface PeerCheckParams {
  /** The processes, each as pid@start: the process id, and the start time in field 22 of /proc/PID/stat. */
  processes: string[];
}

export interface PeerCheckResult {
  /** The first process that has ended, cannot be seen, is another user's than the caller, or is an app or actor of tasks or was started by one. Absent if all may be answered. */
  refused?: RefusedProcess;
}

export interface PolicyFault {
  file: string;
  line: number;
  message: string;
}

export interface PolicyReloadResult {
  /** sha256: and the first 12 digits of digest. */
  revision: string;
  /** Covers names and texts of the policy's files and policy.data. */
  digest: string;
  /** false if the policy was already in force. */
  changed: boolean;
  files: string[];
  config: ConfigReload;
}

export interface PolicyStatus {
  source: string;
  revision: string;
  refusedAt?: string;
  refusal?: string;
  faults?: PolicyFault[];
}

export interface ProfileChunk {
  data: string;
}

export interface ProfileParams {
  /** The profile. */
  name: "allocs" | "cpu" | "goroutine" | "heap" | "threadcreate";
  /** How long the processor is watched; 10 by default. */
  seconds?: number;
}

export interface ProtocolError {
  code: ErrorCode;
  message: string;
  details?: unknown;
}

export interface Provides {
  /** Their names. */
  provides?: string[];
}

export interface QueueDropParams {
  /** The messages. */
  dispatchIds: string[];
  /** The queue in which alone they are looked for. */
  queue?: string;
  /** A note for the record. */
  note?: string;
}

export interface QueueDropResult {
  dropped: DroppedMessage[];
  kept: KeptMessage[];
}

export interface QueueListParams {
  /** The queue. */
  queue?: string;
  /** The sender or the receiver. */
  agent?: string;
  /** The channel. */
  channel?: string;
  /** At most this many; 100 by default. */
  limit?: number;
  /** next of the page before. */
  after?: string;
}

export interface QueueListResult {
  messages: QueuedMessage[];
  next?: string;
}

export interface QueueParams {
  /** The session that the message came in. */
  sessionKey: string;
  /** The text. Required unless metadata names media. */
  text?: string;
  /** Members for the agent; the annotation of another agent is among them. */
  metadata?: Record<string, unknown>;
}

export interface QueueResult {
  runId: string;
  queued: boolean;
}

export interface QueueStatus {
  name: string;
  waiting: number;
}

export interface QueuedMessage {
  queue: string;
  dispatchId: string;
  auditSeq: number;
  event: string;
  sender?: string;
  receiver?: string;
  channel?: string;
  sessionKey?: string;
  summary: string;
  bytes: number;
  expiresAt?: string;
  paused?: string;
  /** The message is on its way to its app, at its reader, or may be with a carrier. */
  handed?: boolean;
}

export interface ReadyParams {
  /** Ignored. */
  metadata?: unknown;
}

export interface RedeemParams {
  /** The approval request. */
  approvalId: string;
  /** A name of the caller's own. A repetition with it gets the same answer until the outcome is confirmed. */
  requestKey?: string;
}

export interface Redeemable {
  approvalId: string;
  dispatchId: string;
  sessionKey: string;
  origin?: string;
  expiresAt: number;
}

export interface RedeemableResult {
  approvals: Redeemable[];
}

export interface Redeemed {
  claim: string;
  data: unknown;
  replayed?: boolean;
}

export interface RefusedProcess {
  process: string;
  why: string;
}

export interface RegisterParams {
  /** The package that registers. */
  manifest: Manifest;
}

export interface RegisterResult {
  appId: string;
  token: string;
  protocolVersion: string;
}

/** A request. Every app's request after app.register has its token. */
export interface RequestMessage {
  id: string;
  type: "request";
  /** Unix milliseconds. */
  timestamp?: number;
  method: keyof Methods;
  /** The method's parameters. None is {}. */
  params?: unknown;
  token?: string;
  signature?: string;
}

/** The answer to a request. The result is that of the request's method. */
export type ResponseMessage = {
  id: string;
  type: "response";
  /** Unix milliseconds. */
  timestamp: number;
  requestId: string;
  success: boolean;
  result?: unknown;
  error?: ProtocolError;
  /** Set if chunks follow under the same requestId. */
  stream?: boolean;
};

export interface RunCompleted {
  runId: string;
  sessionKey: string;
  success: boolean;
  error: string;
}

export interface RunStarting {
  runId: string;
  agentId: string;
  sessionKey: string;
}

export type RunnerAttachParams = Record<string, never>;

export interface RunnerChunk {
  directory?: string;
  key?: string;
  run?: RunnerOrder;
  kill?: RunnerRef;
}

export interface RunnerOrder {
  /** The task's id. */
  task_id: string;
  /** The effect's id. */
  effect_id: string;
  /** The run's number. */
  run: number;
  workspace: string;
  command: TaskAction;
  bound: TaskBound;
  compensation?: boolean;
  started_at: string;
  begun?: string;
}

export interface RunnerRef {
  /** The task's id. */
  task_id: string;
  /** The effect's id. */
  effect_id: string;
  /** The run's number. */
  run: number;
}

export interface RunnerReportParams {
  /** The task's id. */
  task_id: string;
  /** The effect's id. */
  effect_id: string;
  /** The run's number. */
  run: number;
  /** A process waits to start the command, it has ended without the command, the command has a process, or it ended. */
  event: "waits" | "withdrawn" | "spawned" | "finished";
  /** The waiting process, by its pid and start. Required with waits and withdrawn. */
  process?: string;
  /** The command's process. Required with spawned. */
  pid?: number;
  /** The outcome. Required with finished. */
  state?: "done" | "failed" | "outcome_unknown";
  /** The known facts about a run with an unknown outcome. */
  evidence?: string;
  /** The run's receipt. */
  receipt?: unknown;
}

export interface SendParams {
  /** The agent's id or instance id. It can be absent if there is one agent. */
  agent?: string;
  /** The session that the message goes to. */
  sessionKey: string;
  /** The text. Required unless metadata names media. */
  content?: string;
  /** Members for the receiver; some are hints to the daemon. */
  metadata?: Record<string, unknown>;
}

export interface SessionEntry {
  key: string;
  agentId?: string;
  channelId?: string;
  /** The metadata.accountId of the first message. */
  accountId?: string;
  createdAt: number;
  lastActiveAt: number;
  messageCount: number;
}

export interface SessionFilter {
  /** Sessions of this agent. */
  agentId?: string;
  /** Sessions of this channel. */
  channelId?: string;
  /** Sessions of this account. */
  accountId?: string;
  /** Sessions that were used lately, or were not. */
  active?: boolean;
}

export interface SessionGetParams {
  /** A session key. */
  key: string;
}

export interface SessionListParams {
  /** Which sessions; all if it is absent. */
  filter?: SessionFilter;
  /** At most this many; 100 by default. */
  limit?: number;
  /** Skip this many. */
  offset?: number;
}

export interface SessionListResult {
  sessions: SessionEntry[];
  total: number;
}

export interface SessionResult {
  session: SessionEntry | null;
}

export interface SessionStarted {
  sessionKey: string;
  agentId: string;
}

export interface Shared {
  source: string;
  fields: string[];
}

export interface Shrunk {
  before: string;
  after: string;
}

export interface ShutdownParams {
  /** The reason, for the record. */
  reason?: string;
  /** Milliseconds that the daemon waits for requests in flight; 0 is its own limit. */
  timeout?: number;
}

export interface SinkStatus {
  name: string;
  type: string;
  seq: number;
  lag: number;
  oldestUnsent?: string;
  error?: string;
  failingSince?: string;
  sent: number;
  refused: number;
  note?: string;
}

export interface Status {
  version: string;
  protocolVersion: string;
  pid: number;
  startedAt: string;
  socket: string;
  operatorSocket: string;
  configFile: string;
  database: string;
  mirror: string;
  /** A socket that was passed while another one is configured. */
  unusedSocket?: string;
  connections: number;
  apps: AppStatus[];
  agents: AgentStatus[];
  ungated?: UngatedProcess[];
  queues: QueueStatus[];
  exchanges: Record<string, number>;
  held: number;
  oldestHeld?: string;
  paused: PausedScope[];
  sessions: number;
  latency: LatencyStatus;
  policy: PolicyStatus;
  config: ConfigStatus;
  pendingRestart: string[];
  audit: AuditStatus;
  sinks: SinkStatus[];
  witnesses?: WitnessStatus[];
  store: StoreStatus;
}

export interface StoreSnapshot {
  database: string;
  path: string;
  bytes: number;
}

export interface StoreStatus {
  disk: string;
  freeBytes: number;
  reserve: boolean;
}

/** A chunk of a streaming answer. The last one is null and has done set. */
export interface StreamMessage {
  id: string;
  type: "stream";
  /** Unix milliseconds. */
  timestamp: number;
  requestId: string;
  chunk: unknown;
  done: boolean;
}

export interface SubscribeResult {
  subscribed: string[];
  denied: string[];
}

export interface TaskAction {
  /** The program and its arguments. */
  argv: string[];
  /** The working folder, within the workspace. */
  cwd?: string;
  /** Variables. */
  env?: Record<string, string>;
  /** Names of variables of the runner, such as credentials. */
  env_from?: string[];
  /** The standard input. */
  stdin?: string;
  /** Artifacts and files of the workspace that the command reads, by id or path. */
  inputs?: string[];
  /** The seconds until the runner ends the command; 0 is its usual limit. */
  timeout_s?: number;
}

export interface TaskActionInput {
  /** The program and its arguments. */
  argv: string[];
  /** The working folder, within the workspace. */
  cwd?: string;
  /** Variables. */
  env?: Record<string, string>;
  /** Names of variables of the runner, such as credentials. */
  env_from?: string[];
  /** The standard input. */
  stdin?: string;
  /** Artifacts and files of the workspace that the command reads, by id or path. */
  inputs?: string[];
  /** The seconds until the runner ends the command; 0 is its usual limit. */
  timeout_s?: number;
}

export interface TaskApproval {
  approval_id: string;
  effect_id: string;
  status: string;
  request_digest: string;
  bound?: unknown;
  requested_by: string;
  asked_at: string;
  expires_at: string;
  resolved_by?: string;
  resolved_at?: string;
  note?: string;
  needed?: number;
  used?: boolean;
  void?: boolean;
  self_approved?: boolean;
  undo?: number;
}

export interface TaskApprovalRequested {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
  approval_id: string;
  effect_id: string;
  status: string;
  request_digest: string;
  expires_at: string;
}

export interface TaskApprovalResolved {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
  status: string;
  needed: number;
  given: number;
}

export interface TaskArtifact {
  artifact_id: string;
  attempt_id: string;
  kind: string;
  uri: string;
  digest: string;
  size?: number;
  verified: boolean;
  summary?: string;
  actor: string;
  work: boolean;
  undeclared?: boolean;
  current: boolean;
  artifact_revision: number;
  claimed_by?: string;
  by?: TaskPrincipal;
  at: string;
}

export interface TaskArtifactParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The attempt's id. */
  attempt_id: string;
  /** The kind of artifact. */
  kind: "primary_output" | "test_report" | "diff" | "review_report" | "other";
  /** The file's path in the workspace, or another address. */
  uri: string;
  /** The caller's name. */
  produced_by: string;
  /** A sentence about it. */
  summary?: string;
  /** sha256: and the SHA-256 in hexadecimal digits. Required unless uri is a file in the workspace. */
  digest?: string;
  /** The attempt's fence from task.start_attempt. */
  fence?: number;
}

export interface TaskArtifactRecorded {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
  artifact_id: string;
  artifact_revision: number;
  digest: string;
  verified: boolean;
}

export interface TaskAskPermissionParams {
  /** The task's id. */
  task_id: string;
  /** The attempt's id. */
  attempt_id?: string;
  /** The call. */
  tool_call?: TaskToolCall;
  /** The answers that the runtime offers its user. */
  options?: unknown;
}

export interface TaskAttachParams {
  /** The grant's token. */
  token: string;
}

export interface TaskAttached {
  grant_id: string;
  actor: string;
  role: string;
  agent?: string;
  tenant_id?: string;
  task_id?: string;
  attempt_id?: string;
  fence?: number;
  tools: string[];
  expires_at: string;
}

export interface TaskAttempt {
  attempt_id: string;
  ordinal: number;
  actor: string;
  status: string;
  fence: number;
  runtime: string;
  executor_kind: string;
  worker_ref?: string;
  external_session_ref?: string;
  escalate: boolean;
  started_at: string;
  ended_at?: string;
  ended_by?: string;
  lease_expires_at: string;
  retry_at?: string;
  failure_code?: string;
  error_summary?: string;
  by?: TaskPrincipal[];
  checkpoints: number;
  last_checkpoint?: TaskCheckpoint;
}

export interface TaskAttemptFinished {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
  status: string;
  retry_at?: string;
  warning?: string;
}

export interface TaskAttemptStarted {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
  attempt_id: string;
  ordinal: number;
  fence: number;
  escalate: boolean;
}

export interface TaskBound {
  exe: TaskProgram;
  folder?: string;
  inputs: TaskInput[];
  named?: TaskNamed[];
}

export interface TaskCancelEffectParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The effect's id. */
  effect_id: string;
}

export interface TaskChanged {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
}

export interface TaskCheckpoint {
  checkpoint_type: string;
  payload?: unknown;
  actor: string;
  at: string;
}

export interface TaskCheckpointParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The attempt's id. */
  attempt_id: string;
  /** heartbeat renews the lease. Any other word, such as progress, is kept as a checkpoint. */
  checkpoint_type: string;
  /** The content of the checkpoint. Empty for a mere heartbeat. */
  payload: Record<string, unknown>;
  /** The attempt's fence from task.start_attempt. */
  fence?: number;
}

export interface TaskCheckpointed {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
  lease_expires_at?: string;
  cancel: boolean;
}

export interface TaskClaim {
  actor: string;
  until: string;
  lease_ms: number;
}

export interface TaskClaimParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The seconds of the claim; 60 by default, and 0 gives the task back. */
  lease_s?: number;
}

export interface TaskClaimed {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
  claimed_until?: string;
}

export interface TaskCloseCircuitParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The next phase. */
  to_phase: "spec_draft" | "spec_review" | "execution_ready" | "executing" | "spec_gate" | "quality_gate" | "awaiting_approval" | "ready_to_resume" | "completed" | "failed" | "circuit_open";
  /** The reason, for the record. */
  reason: string;
}

export interface TaskCreateParams {
  /** A short title. */
  title: string;
  /** The specification as Markdown, with the headings Goal, Scope, Non-goals, Inputs, Outputs, Acceptance criteria and Risks, or these names in Chinese, Dutch, French, German, Italian, Japanese, Portuguese or Spanish. Required unless spec_ref or spec is given. */
  spec_markdown?: string;
  /** A file in the workspace that holds the specification, in place of spec_markdown. */
  spec_ref?: TaskSpecRef;
  /** The specification as fields. They take precedence over the Markdown. */
  spec?: TaskFields;
  /** The absolute path of the working folder, or a name. */
  workspace: string;
  /** The first phase. spec_review needs a complete specification. */
  initial_phase: "spec_draft" | "spec_review";
  /** Labels. */
  labels?: string[];
  /** 0 is the most urgent; 2 by default. */
  priority?: number;
  /** Ids of tasks that must be completed first. */
  depends_on?: string[];
  /** The task's effects on the world at its end. Each needs a person's approval. */
  effects?: TaskPlanned[];
  /** The task's tenant, if a person creates it and there are several. */
  tenant_id?: string;
  /** The level of the task's texts. A text can raise it. */
  classification?: "public" | "internal" | "confidential" | "restricted";
  /** The earliest start, RFC 3339. */
  not_before?: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
}

export interface TaskCreated {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
  missing: TaskMissing[];
}

export interface TaskEffect {
  effect_id: string;
  /** A name of the effect within the task. A second request with it is the same effect. */
  idempotency_key: string;
  /** The kind of effect, in a word: deployment, merge, notification, … */
  side_effect_kind: string;
  /** The action, in a sentence that a person can decide about. Required to request an approval. */
  requested_action?: string;
  /** The program to run. The approval binds program, arguments, environment and inputs by their digests. */
  command?: TaskAction;
  /** The parameters of an effect that is no command, for its executor. */
  params?: unknown;
  /** A command that undoes the effect. It is approved together with the effect. */
  compensation?: TaskAction;
  type: string;
  origin: string;
  state: string;
  planned_by: string;
  late?: boolean;
  request_digest?: string;
  runs: TaskRun[];
  receipt?: unknown;
  at: string;
}

export interface TaskEffectPlanned {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
  effect_id: string;
  state: string;
}

export interface TaskEffectRun {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
  effect_id: string;
  state: string;
  run: number;
  receipt?: unknown;
  run_token?: string;
}

export interface TaskEffectState {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
  effect_id: string;
  state: string;
}

export interface TaskEvent {
  seq?: number;
  task_id: string;
  n: number;
  event: string;
  at: string;
  actor: string;
  role: string;
  attempt_id?: string;
  was?: Record<string, unknown>;
  now?: Record<string, unknown>;
  reason?: string;
  phase?: string;
  revision?: number;
}

export interface TaskFields {
  /** The goal, in a sentence. */
  goal?: string;
  /** The parts of the task. */
  scope_in?: string[];
  /** The parts that do not belong to the task. */
  scope_out?: string[];
  /** The inputs of the task. */
  inputs?: string[];
  /** The results of the task. */
  outputs?: string[];
  /** The criteria of a completed task. Each can be checked. */
  acceptance_criteria?: string[];
  /** The risks. */
  risks?: string[];
}

export interface TaskFinding {
  /** The severity. */
  severity: string;
  /** The fault, and how to correct it. */
  message: string;
  /** The file. */
  file?: string;
  /** The line. */
  line?: number;
  /** The artifact. */
  artifact_uri?: string;
}

export interface TaskFindingInput {
  /** The severity. */
  severity: "critical" | "major" | "minor";
  /** The fault, and how to correct it. */
  message: string;
  /** The file. */
  file?: string;
  /** The line. */
  line?: number;
  /** The artifact. */
  artifact_uri?: string;
}

export interface TaskFinishAttemptParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The attempt's id. */
  attempt_id: string;
  /** The outcome. */
  outcome: "succeeded" | "failed" | "aborted";
  /** The cause of a failure. Required with failed, and given with nothing else. */
  failure_code?: "agent_error" | "timeout" | "lease_expired" | "crashed" | "max_tokens" | "max_turns" | "invalid_output" | "refused" | "cancelled" | "environment";
  /** The failure in a sentence. */
  error_summary?: string;
  /** The attempt's fence from task.start_attempt. */
  fence?: number;
}

export interface TaskFinishEffectParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The effect's id. */
  effect_id: string;
  /** The run's number. */
  run: number;
  /** The run's token from task.run_effect. */
  run_token: string;
  /** The outcome. */
  outcome: "done" | "failed";
  /** Evidence of the outcome. */
  receipt?: unknown;
}

export interface TaskGate {
  needed: number;
  approved: string[];
  against: string[];
}

export interface TaskGates {
  spec: TaskGate;
  quality: TaskGate;
}

export interface TaskGetParams {
  /** The task's id. */
  task_id: string;
  /** The number of newest events in the answer; 20 by default. */
  include_events_limit?: number;
  /** One list of the task, without the others. The answer's more names the lists that were cut. */
  part?: "specs" | "attempts" | "artifacts" | "reviews" | "effects" | "approvals" | "checkpoints" | "events";
  /** With part: the id of the entry before the first one in the answer. */
  after?: string;
}

export interface TaskGrantLine {
  grant_id: string;
  actor?: string;
  role?: string;
  agent?: string;
  tenant_id?: string;
  task_id?: string;
  attempt_id?: string;
  tools: string[];
  bind?: string;
  holder?: TaskHolder;
  under?: string;
  issued_by: string;
  issued_at: string;
  expires_at: string;
  last_used_at?: string;
}

export interface TaskGrantParams {
  /** The task. Only a person can leave it out, for an orchestrator or an agent. */
  task_id?: string;
  /** The actor's name. Required with task_id, and without agent. */
  actor?: string;
  /** The agent that the token sends and reads for. Only a person can give it. */
  agent?: string;
  /** The executor's attempt. */
  attempt_id?: string;
  /** The tools of the grant; those of the role by default. */
  tools?: string[];
  /** The seconds until the grant ends. */
  expires_s?: number;
  /** The processes that may attach after the first: the same program (default), the same process, or any. */
  bind?: "program" | "process" | "none";
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
}

export interface TaskGranted {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
  grant_id: string;
  token?: string;
  actor: string;
  role: string;
  agent?: string;
  attempt_id?: string;
  fence?: number;
  tools: string[];
  expires_at: string;
}

export interface TaskGrants {
  grants: TaskGrantLine[];
  next?: string;
}

export interface TaskGrantsParams {
  /** The grants that are good for this task: its own, and those of its tenant for any task. */
  task_id?: string;
  /** The grants of this actor or agent. */
  actor?: string;
  /** The most grants in the answer. */
  limit?: number;
  /** The answer's next: continues a list. */
  after?: string;
}

export interface TaskHolder {
  uid: number;
  exe?: string;
  process?: string;
}

export interface TaskImportParams {
  /** The task's name in the other system, such as v1:ID. A second call with it returns the existing task. */
  origin: string;
  /** A short title. */
  title: string;
  /** The task's phase here. */
  phase: "spec_draft" | "circuit_open" | "completed";
  /** The absolute path of the working folder, or a name. */
  workspace: string;
  /** The specification as fields. They take precedence over the Markdown. */
  spec?: TaskFields;
  /** The specification as Markdown. */
  spec_markdown?: string;
  /** Labels. */
  labels?: string[];
  /** 0 is the most urgent; 2 by default. */
  priority?: number;
  /** Ids of tasks that must be completed first. */
  depends_on?: string[];
  /** The task's artifacts. The daemon hashes files of the workspace. */
  artifacts?: TaskImported[];
  /** The task's tenant, if there are several. */
  tenant_id?: string;
  /** The level of the task's texts. */
  classification?: "public" | "internal" | "confidential" | "restricted";
  /** The task's state in the other system, for the record. */
  status?: string;
  /** The number of retries in the other system, for the record. */
  retries?: number;
  /** The last error in the other system, for the record. */
  last_error?: string;
}

export interface TaskImported {
  /** The file's path in the workspace, or another address. */
  uri: string;
  /** sha256: and the SHA-256 in hexadecimal digits. Required unless uri is a file in the workspace. */
  digest?: string;
}

export interface TaskInput {
  uri: string;
  digest: string;
  argv?: TaskWord[];
}

export interface TaskKillEffectParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The effect's id. */
  effect_id: string;
  /** The run's number; by default the run in progress. */
  run?: number;
  /** The reason, for the record. */
  reason: string;
}

export interface TaskLine {
  task_id: string;
  tenant_id?: string;
  title: string;
  workspace: string;
  phase: string;
  revision: number;
  seq: number;
  circuit_status: string;
  priority: number;
  labels: string[];
  depends_on: string[];
  classification?: string;
  not_before?: string;
  created_at: string;
  updated_at: string;
  created_by: string;
  current_attempt_id?: string;
  artifact_revision: number;
  fence?: number;
  counted?: number;
  claim?: TaskClaim;
  circuit_reason?: string;
  origin?: string;
  ready_at: string | null;
  waits_for: string;
  since: string;
  person?: boolean;
  questions?: TaskQuestion[];
  progress?: TaskProgress;
}

export interface TaskList {
  tasks: TaskLine[];
  next?: string;
}

export interface TaskListParams {
  /** Tasks of this tenant. */
  tenant_id?: string;
  /** Tasks in this phase. */
  phase?: "spec_draft" | "spec_review" | "execution_ready" | "executing" | "spec_gate" | "quality_gate" | "awaiting_approval" | "ready_to_resume" | "completed" | "failed" | "circuit_open";
  /** Leaves out completed and failed tasks without a question to people. */
  open?: boolean;
  /** The most tasks in the answer. */
  limit?: number;
  /** The answer's next: continues a list. */
  after?: string;
  /** Begins with the newest task. after then continues to older ones. */
  newest?: boolean;
}

export interface TaskListReadyParams {
  /** The most tasks in the answer. */
  limit?: number;
  /** Labels. Tasks with all of them are listed. */
  labels?: string[];
}

export interface TaskMissing {
  field: string;
  problem: string;
  entry?: number;
  reason?: string;
}

export interface TaskNamed {
  path: string;
  leads?: string;
  digest?: string;
  absent?: boolean;
}

export interface TaskNews {
  seq?: number;
  task_id?: string;
  n?: number;
  event?: string;
  at?: string;
  actor?: string;
  role?: string;
  attempt_id?: string;
  was?: Record<string, unknown>;
  now?: Record<string, unknown>;
  reason?: string;
  phase?: string;
  revision?: number;
  caught?: boolean;
}

export interface TaskOpenCircuitParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The caller's name. */
  actor: string;
  /** The caller's role. */
  actor_role?: string;
  /** The reason, for the record. */
  reason: string;
  /** The id of the last attempt. */
  latest_attempt_id?: string;
}

export interface TaskOption {
  to: string;
  allowed: boolean;
  guards: string[];
  via?: string;
}

export interface TaskPermission {
  decision: string;
  reason?: string;
  approval_id?: string;
}

export interface TaskPlanEffectParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** A name of the effect within the task. A second request with it is the same effect. */
  idempotency_key: string;
  /** The kind of effect, in a word: deployment, merge, notification, … */
  side_effect_kind: string;
  /** The action, in a sentence that a person can decide about. Required to request an approval. */
  requested_action?: string;
  /** The program to run. The approval binds program, arguments, environment and inputs by their digests. */
  command?: TaskActionInput;
  /** The parameters of an effect that is no command, for its executor. */
  params?: Record<string, unknown>;
  /** A command that undoes the effect. It is approved together with the effect. */
  compensation?: TaskActionInput;
}

export interface TaskPlanned {
  /** A name of the effect within the task. A second request with it is the same effect. */
  idempotency_key: string;
  /** The kind of effect, in a word: deployment, merge, notification, … */
  side_effect_kind: string;
  /** The action, in a sentence that a person can decide about. Required to request an approval. */
  requested_action?: string;
  /** The program to run. The approval binds program, arguments, environment and inputs by their digests. */
  command?: TaskActionInput;
  /** The parameters of an effect that is no command, for its executor. */
  params?: Record<string, unknown>;
  /** A command that undoes the effect. It is approved together with the effect. */
  compensation?: TaskActionInput;
}

export interface TaskPrincipal {
  name: string;
  processes?: string[];
  issuers?: string[];
}

export interface TaskProgram {
  path: string;
  sha256: string;
}

export interface TaskProgress {
  attempt: number;
  actor: string;
  started_at: string;
  checkpoints: number;
  heard_at: string;
  lease_expires_at: string;
}

export interface TaskQuestion {
  about: string;
  approval_id?: string;
  effect_id?: string;
  run?: number;
  text: string;
  details?: string[];
  since: string;
}

export interface TaskRequestApprovalParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The attempt's id. */
  attempt_id?: string;
  /** A name of the effect within the task. A second request with it is the same effect. */
  idempotency_key: string;
  /** The kind of effect, in a word: deployment, merge, notification, … */
  side_effect_kind: string;
  /** The action, in a sentence that a person can decide about. Required to request an approval. */
  requested_action?: string;
  /** The program to run. The approval binds program, arguments, environment and inputs by their digests. */
  command?: TaskActionInput;
  /** The parameters of an effect that is no command, for its executor. */
  params?: Record<string, unknown>;
  /** A command that undoes the effect. It is approved together with the effect. */
  compensation?: TaskActionInput;
  /** The caller's name. */
  requested_by?: string;
  /** Asks whether the effect of the key, which was run, may be undone: for an effect whose approval does not allow that any more. */
  undo?: boolean;
  /** Ignored. The published protocol has it. */
  status?: string;
}

export interface TaskResolveApprovalParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The approval's id. */
  approval_id: string;
  /** The decision. */
  resolution: "approved" | "rejected" | "request_changes";
  /** The caller's name. */
  resolved_by?: string;
  /** The reason. */
  note?: string;
  /** The digest of the request that the person saw, from approval.get. Required to approve. */
  digest?: string;
  /** A person's armored SSH signature. */
  signature?: string;
}

export interface TaskReview {
  review_id: string;
  attempt_id?: string;
  review_type: string;
  actor: string;
  verdict: string;
  findings: TaskFinding[];
  summary?: string;
  subject: TaskSubject;
  claimed_by?: string;
  shared_principal?: string;
  void?: boolean;
  at: string;
  stale: boolean;
}

export interface TaskReviewParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The attempt's id. */
  attempt_id?: string;
  /** The subject of the review. A reviewer gives reviews of its own type. */
  review_type: "spec" | "quality";
  /** The caller's name. */
  reviewer_ref: string;
  /** The verdict. approved passes. */
  verdict: "approved" | "changes_requested" | "blocked";
  /** The findings; an empty list if there are none. */
  findings: TaskFindingInput[];
  /** A sentence about it. */
  summary?: string;
  /** The reviewed revision; by default the last one that the caller read. */
  subject_revision?: number;
}

export interface TaskReviewed {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
  review_id: string;
  stale: boolean;
}

export interface TaskRevokeGrantParams {
  /** The grant's task. */
  task_id?: string;
  /** The grant's id. */
  grant_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
}

export interface TaskRun {
  run: number;
  compensation?: boolean;
  state: string;
  approval_id: string;
  actor: string;
  role?: string;
  started_at: string;
  ended_at?: string;
  begun?: string;
  withdrawn?: boolean;
  pid?: number;
  receipt?: unknown;
  token_hash?: string;
  kill_asked?: boolean;
  not_begun?: boolean;
  undo_until?: string;
  evidence?: string;
  settled_by?: string;
}

export interface TaskRunEffectParams {
  /** The task's id. */
  task_id: string;
  /** The effect's id. */
  effect_id?: string;
  /** The effect's key, in place of effect_id. */
  idempotency_key?: string;
  /** The digest from the answer of task.request_approval. */
  request_digest: string;
  /** Undoes the effect, once, by the compensation that was approved with it. */
  compensation?: boolean;
  /** Seconds to wait for the end; for a lobster also for the decision and the orchestrator's move. */
  wait_s?: number;
}

export interface TaskSettleEffectParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The effect's id. */
  effect_id: string;
  /** The run's number; by default the run with an unknown outcome. */
  run?: number;
  /** The outcome. */
  outcome: "done" | "failed";
  /** The reason, for the record. */
  note: string;
}

export interface TaskSpec {
  version: number;
  /** The goal, in a sentence. */
  goal?: string;
  /** The parts of the task. */
  scope_in?: string[];
  /** The parts that do not belong to the task. */
  scope_out?: string[];
  /** The inputs of the task. */
  inputs?: string[];
  /** The results of the task. */
  outputs?: string[];
  /** The criteria of a completed task. Each can be checked. */
  acceptance_criteria?: string[];
  /** The risks. */
  risks?: string[];
  markdown?: string;
  uri?: string;
  digest?: string;
  author: string;
  by?: TaskPrincipal;
  at: string;
}

export interface TaskSpecRef {
  /** The file's path in the workspace. */
  uri: string;
  /** sha256: and the file's SHA-256 in hexadecimal digits. */
  digest?: string;
}

export interface TaskStartAttemptParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The caller's name. */
  actor: string;
  /** The caller's role. */
  actor_role?: string;
  /** The phase of the attempt. */
  phase: "executing";
  /** The runtime of the attempt. */
  runtime: "local" | "acp" | "other";
  /** The kind of executor. One of kind research reads and reports: it records no work and plans no effect. */
  executor_kind: "builder" | "research" | "external_coder";
  /** The name of the executor that makes the attempt; the caller if it is absent. */
  worker_ref?: string;
  /** The executor's session elsewhere. */
  external_session_ref?: string;
  /** The revision that the caller read. The call is refused if the task has changed since. */
  expected_revision?: number;
}

export interface TaskSubject {
  spec_version: number;
  artifact_revision: number;
  gate: boolean;
}

export interface TaskToolCall {
  /** The call's id in the runtime. */
  id?: string;
  /** The kind of call, such as execute. */
  kind: string;
  /** The call in a sentence. */
  title?: string;
  /** Whether the call touches only files of the task's workspace. */
  in_workspace?: boolean;
  /** The tool's MCP server. */
  mcp_server?: string;
  /** The tool's arguments. */
  input?: unknown;
}

export interface TaskTransitionParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The task's present phase. */
  from_phase: "spec_draft" | "spec_review" | "execution_ready" | "executing" | "spec_gate" | "quality_gate" | "awaiting_approval" | "ready_to_resume" | "completed" | "failed" | "circuit_open";
  /** The next phase. */
  to_phase: "spec_draft" | "spec_review" | "execution_ready" | "executing" | "spec_gate" | "quality_gate" | "awaiting_approval" | "ready_to_resume" | "completed" | "failed" | "circuit_open";
  /** The caller's name. */
  actor: string;
  /** The caller's role. */
  actor_role?: string;
  /** The reason, for the record. */
  reason: string;
  /** The attempt's id. */
  attempt_id?: string;
  /** The revision that the caller read. The call is refused if the task has changed since. */
  expected_revision?: number;
}

export interface TaskUpdateParams {
  /** The task's id. */
  task_id: string;
  /** A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once. */
  request_key?: string;
  /** The revision that the caller read. The call is refused if the task has changed since. */
  expected_revision: number;
  /** A short title. */
  title?: string;
  /** Labels. */
  labels?: string[];
  /** 0 is the most urgent; 2 by default. */
  priority?: number;
  /** Ids of tasks that must be completed first. */
  depends_on?: string[];
  /** The earliest start, RFC 3339. */
  not_before?: string;
  /** The specification as fields. They take precedence over the Markdown. */
  spec?: TaskFields;
  /** The specification as Markdown, with the headings Goal, Scope, Non-goals, Inputs, Outputs, Acceptance criteria and Risks, or these names in Chinese, Dutch, French, German, Italian, Japanese, Portuguese or Spanish. */
  spec_markdown?: string;
}

export interface TaskUpdated {
  task_id: string;
  phase: string;
  revision: number;
  audit_seq?: number;
  replayed?: boolean;
  missing: TaskMissing[];
}

export interface TaskView {
  task_id: string;
  tenant_id?: string;
  title: string;
  workspace: string;
  phase: string;
  revision: number;
  seq: number;
  circuit_status: string;
  priority: number;
  labels: string[];
  depends_on: string[];
  classification?: string;
  not_before?: string;
  created_at: string;
  updated_at: string;
  created_by: string;
  current_attempt_id?: string;
  artifact_revision: number;
  fence?: number;
  counted?: number;
  claim?: TaskClaim;
  circuit_reason?: string;
  origin?: string;
  spec: TaskSpec;
  spec_versions: number;
  missing: TaskMissing[];
  attempts: TaskAttempt[];
  artifacts: TaskArtifact[];
  reviews: TaskReview[];
  effects: TaskEffect[];
  approvals: TaskApproval[];
  gates: TaskGates;
  allowed_transitions: TaskOption[];
  retries_left: number;
  reworks_left: number;
  escalate?: boolean;
  ready_at: string | null;
  lease_expires_at?: string;
  open_dependencies?: string[];
  events: TaskEvent[];
  more?: string[];
  failure_summary?: string[];
  last_good_artifacts?: TaskArtifact[];
  last_good_revision?: number;
  unblock?: string[];
  specs?: TaskSpec[];
  checkpoints?: TaskCheckpoint[];
}

export interface TaskWatchParams {
  /** The task; all tasks if it is absent. */
  task_id?: string;
  /** A number of the log. The stream begins after it. */
  after?: number;
}

export interface TaskWord {
  index: number;
  from?: number;
}

export interface ToolUse {
  /** The tool's name, a string. */
  toolName?: unknown;
  /** The tool's arguments. */
  params?: unknown;
  /** The tool's server, a string. */
  mcpServer?: unknown;
  /** The working folder, a string. */
  cwd?: unknown;
  /** A string that tells the server from others of its name. */
  origin?: unknown;
  /** The proxy's map for the server, a string. */
  map?: unknown;
  /** true if no map has the tool and the tool takes text. */
  unmapped?: unknown;
  /** The client's answers about the call. */
  inputResponses?: unknown;
  /** The arguments that the request's header repeats. */
  headers?: unknown;
  /** The call's number in the runtime, a string. */
  toolCallId?: unknown;
}

export interface Turn {
  round: number;
  sender: string;
  summary: string;
  claimed?: boolean;
}

export interface UngatedProcess {
  app: string;
  title: string;
  pid: number;
  since: string;
  why?: string;
}

export interface UnregisterParams {
  /** The id from capability.register. */
  capabilityId: string;
}

export interface UnsignedRecords {
  first: number;
  last: number;
  since: string;
  until: string;
}

export interface UnsubscribeResult {
  unsubscribed: string[];
}

/** The codes of verdicts, in details.ocip of an error and in the member ocip of a result. */
export type VerdictCode = "CROSS_ENTERPRISE_BLOCKED" | "EXCHANGE_EXPIRED" | "EXCHANGE_CLOSED" | "CLASSIFICATION_VIOLATION" | "POLICY_DENIED" | "POLICY_ENGINE_UNREACHABLE" | "POLICY_REQUIRES_APPROVAL" | "EXCHANGE_ROUND_LIMIT" | "EXCHANGE_CHAIN_LIMIT" | "EXCHANGE_TYPE_UNSUPPORTED" | "QUERIES_NOT_RECEIVED" | "ANNOTATION_TOO_LARGE" | "MALFORMED_ENVELOPE" | "ENVELOPE_SOURCE_MISMATCH" | "ENVELOPE_REPLAYED" | "COMMITMENT_REQUIRES_HUMAN" | "REPLY_NOT_EXPECTED" | "INTERCEPTOR_BLOCKED" | "INTERCEPTOR_TIMEOUT" | "TOO_MANY_HELD" | "AUDIT_WRITE_FAILED" | "RECIPIENT_MISMATCH" | "LOOKS_LIKE_KNOWN" | "BUDGET_EXCEEDED" | "FIRST_CONTACT" | "ENVELOPE_FORGED" | "PAUSED" | "MEDIA_REFUSED" | "TASK_REFUSED" | "CHANGED_SINCE";

export interface Watching {
  watching: boolean;
}

export interface WithdrawParams {
  /** The approval request. */
  approvalId: string;
  /** A note for the record. */
  note?: string;
}

export interface Withheld {
  reason: string;
  description: string;
}

export interface WitnessStatus {
  name: string;
  url: string;
  signed: number;
  refused?: boolean;
  error?: string;
  failingSince?: string;
}
