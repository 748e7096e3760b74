"""OpenClawOS kernel protocol 1.0: types made by "ocipd protocol python".

Dictionaries with the members of the protocol. A member that is optional can be absent; Python has no
type for that before 3.11, so each type has its required members in a base class.
"""
from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict, Union


class AcknowledgeParams(TypedDict):
    # The id of the event that gave the message, which is beside its type and not in its payload.
    id: str


class _AgentApproval(TypedDict):
    approval_id: str
    status: str
    code: str
    reason: str
    dispatch_id: str
    expires_at: str


class AgentApproval(_AgentApproval, total=False):
    exchange_id: str
    note: str


class AgentApprovalParams(TypedDict):
    # The approval request.
    approval_id: str


class _AgentContact(TypedDict):
    session: str
    kind: str


class AgentContact(_AgentContact, total=False):
    instance_id: str
    user_id: str
    org_unit: str
    here: bool


class AgentContacts(TypedDict):
    agent: str
    contacts: List['AgentContact']


class _AgentEmitParams(TypedDict):
    # The hook.
    hookName: str
    # Of message_sending and message_received: sessionKey, content, metadata, dispatchId, disclosure. Of others: any object.
    data: Dict[str, Any]


class AgentEmitParams(_AgentEmitParams, total=False):
    # The agent, session, channel and account.
    context: 'HookContextInput'
    # A name for the call. agent.confirm takes it if no answer came.
    requestKey: str
    # The caller's process id, if it can use exemptUntil of the answer.
    process: int


class AgentExchangeParams(TypedDict):
    # The exchange.
    exchange_id: str


class _AgentMessages(TypedDict):
    messages: List['AgentMessage']
    more: bool


class AgentMessages(_AgentMessages, total=False):
    cursor: str


class AgentNews(TypedDict, total=False):
    approval_id: str
    status: str
    caught: bool


class AgentReadParams(TypedDict, total=False):
    # The cursor of the page before: its messages leave the inbox.
    cursor: str
    # At most this many; 20 by default.
    limit: int
    # Seconds to wait for a message if there is none.
    wait_s: int


class _AgentSendParams(TypedDict):
    # A session key, or the id of an agent of this daemon.
    to: str
    # The text.
    text: str


class AgentSendParams(_AgentSendParams, total=False):
    # The exchange that the message continues.
    exchange_id: str
    # Begins another exchange.
    new_exchange: bool
    # The subject of the exchange.
    exchange_type: Literal["information_query", "commitment_request", "meeting_scheduling"]
    # The level of the text. The text can raise it.
    classification: Literal["public", "internal", "confidential", "restricted"]
    # Who may answer.
    reply_policy: Literal["agent-ok", "human-only", "no-reply-needed"]
    # The task that the message is about.
    task_id: str
    # The attempt of that task.
    attempt_id: str
    # A name of the caller's own for this call. A repetition with it is answered like the first.
    request_key: str


class _AgentSent(TypedDict):
    dispatch_id: str
    status: str
    audit_id: str


class AgentSent(_AgentSent, total=False):
    approval_id: str
    exchange_id: str
    round: int
    max_rounds: int
    code: str
    reason: str
    replayed: bool


class AgentStatus(TypedDict):
    id: str
    instanceId: str
    app: str
    connected: bool


class AppEvent(TypedDict):
    appId: str
    lastSeenAt: int
    timestamp: int


class _AppStatus(TypedDict):
    id: str
    version: str
    type: str
    health: str
    ready: bool
    pid: int
    uid: int
    lastSeenAt: str
    capabilities: List[str]
    hooks: List[str]


class AppStatus(_AppStatus, total=False):
    status: Any


class _Approval(TypedDict):
    approvalId: str
    # message, escalation, effect, permission or delivery.
    kind: str
    state: str
    code: str
    reason: str
    agentId: str
    agent: str
    appId: str
    userId: str
    sessionKey: str
    counterparty: str
    counterpartyUserId: str
    exchangeId: str
    conversationId: str
    type: str
    round: int
    maxRounds: int
    classification: str
    summary: str
    dispatchId: str
    askedAt: int
    expiresAt: int
    # false if the message can only be denied, resolved or taken over; blocked has the reason.
    approvable: bool
    needed: int
    given: int
    # Covers sending, the policy revision and the receiver (kind, instance, user, tenant, session, target, channel, account, group).
    digest: str
    # The text to sign for each decision.
    toSign: Dict[str, str]
    signatureRequired: bool
    policyApplied: str
    policyRevision: str
    content: str
    contentBytes: int
    detectedKeywords: List[str]
    # The findings, by member (none for content) and bytes.
    detections: List['AuditDetection']
    dataShared: List['Shared']
    dataWithheld: List['Withheld']
    transcript: List['Turn']
    escalation: Union['Escalation', None]
    approvals: List['ApprovalDecision']
    # The changes since a person last looked: policyRevision, verdict, sending, media, interceptor, and members of the receiver such as address.account.
    changed: List['ApprovalChange']
    decision: Union['ApprovalDecision', None]


class Approval(_Approval, total=False):
    taskId: str
    counterpartyKind: str
    counterpartyTenantId: str
    target: str
    decidedAt: int
    # Every rule that holds the message: first a commitment, then the other rules in their order, last a commitment with the likelihood low. code and reason are those of the first rule. likelihood (high, medium or low) and chance, the estimate in percent, order requests; they are absent if no words hold the message, or if it is a commitment for certain.
    reasons: List['Ground']
    likelihood: str
    likelyBecause: str
    chance: int
    # The answer of the operator's model (ocip.judge) about the message. It is no person's word, and apps and agents are not told it.
    opinion: 'Opinion'
    blocked: str
    address: 'AuditAddress'
    # Several people read the address.
    group: bool
    salt: str
    forgotten: bool
    # The message exactly as it would be sent: content, and metadata with the envelope.
    sending: Any
    requiresHuman: bool
    media: List['MediaItem']
    # Parts of other texts: of each file and inline part the beginning (64 KiB of all together), and the surroundings of each finding. at is the beginning in the member's text, of that text's length. For a file, member is "file " and the member of its item in media.
    extracts: List['Extract']
    chain: 'Chain'
    escalatedExchange: str
    # The widest bounds of a pre-approval for the exchange; noExchange has the reason if there is none.
    exchange: 'Bounds'
    noExchange: str
    # For people: the kind by the present configuration, if that differs.
    counterpartyNow: str
    # Of an approved message that a runtime delivers: ready, claimed, sent, unknown, abandoned or expired. Of an approved effect: ready, sent (a start has used it) or expired.
    delivery: str
    # Of an effect, for people: title, goal, spec_version, attempt, artifact_revision, artifacts, gates, reviews with their findings, the task's other effects, planned {by, at, late}, and left_out, which counts what was cut. The digest covers it.
    context: Any
    # Of an effect, for people: the request_digest of task.run_effect. digest covers it.
    requestDigest: str


class ApprovalChange(TypedDict):
    field: str
    was: str
    now: str


class _ApprovalDecision(TypedDict):
    decision: str
    by: str
    uid: int
    at: int


class ApprovalDecision(_ApprovalDecision, total=False):
    note: str
    fingerprint: str
    signature: str
    exchange: 'Bounds'
    # console if a page called for a person.
    via: str
    # The process that asked, such as the browser.
    client: 'ClientProcess'
    # none if the decision was a click (console.decide: session), judge if the operator's model took it (ocip.judge.may: release).
    proof: str


class ApprovalListParams(TypedDict, total=False):
    # The state; pending by default.
    state: Literal["pending", "approved", "denied", "taken_over", "resolved", "expired", "request_changes", "revoked", "all"]
    # An agent's id or instance id.
    agent: str
    # At most this many; 1,000 by default.
    limit: int
    # The last request of the page before.
    after: str


class _ApprovalListResult(TypedDict):
    approvals: List[Any]
    total: int


class ApprovalListResult(_ApprovalListResult, total=False):
    # Rows that something else than the daemon changed: the list leaves out what needs them.
    altered: List[str]


class ApprovalNews(TypedDict, total=False):
    approval: 'ApprovalSummary'
    caught: bool
    # Rows that something else than the daemon changed: the list leaves out what needs them.
    altered: List[str]


class _ApprovalOutcome(TypedDict):
    approvalId: str
    dispatchId: str
    resolution: str
    timestamp: int


class ApprovalOutcome(_ApprovalOutcome, total=False):
    note: str
    data: Any


class ApprovalParams(TypedDict):
    # The approval request.
    approvalId: str


class _ApprovalResolveParams(TypedDict):
    # The approval request.
    approvalId: str
    # The decision.
    decision: Literal["approve", "deny", "takeover", "resolve", "request_changes"]


class ApprovalResolveParams(_ApprovalResolveParams, total=False):
    # The digest of what the person saw. Required to approve and to take over.
    digest: str
    # A note for the record.
    note: str
    # The text that a person who takes over sends instead; the message as it is if it is empty.
    content: str
    # With approve: what is approved of the rest of the exchange, within the offered bounds.
    exchange: 'BoundsInput'
    # An armored SSH signature over the decision.
    signature: str


class _ApprovalResolveResult(TypedDict):
    state: str
    dispatchId: str
    needed: int
    given: int
    auditSeq: int


class ApprovalResolveResult(_ApprovalResolveResult, total=False):
    grantId: str


class _ApprovalSummary(TypedDict):
    approvalId: str
    # message, escalation, effect, permission or delivery.
    kind: str
    state: str
    code: str
    reason: str
    agentId: str
    agent: str
    appId: str
    userId: str
    sessionKey: str
    counterparty: str
    counterpartyUserId: str
    exchangeId: str
    conversationId: str
    type: str
    round: int
    maxRounds: int
    classification: str
    summary: str
    dispatchId: str
    askedAt: int
    expiresAt: int
    # false if the message can only be denied, resolved or taken over; blocked has the reason.
    approvable: bool
    needed: int
    given: int


class ApprovalSummary(_ApprovalSummary, total=False):
    taskId: str
    counterpartyKind: str
    counterpartyTenantId: str
    target: str
    decidedAt: int
    # Every rule that holds the message: first a commitment, then the other rules in their order, last a commitment with the likelihood low. code and reason are those of the first rule. likelihood (high, medium or low) and chance, the estimate in percent, order requests; they are absent if no words hold the message, or if it is a commitment for certain.
    reasons: List['Ground']
    likelihood: str
    likelyBecause: str
    chance: int
    # The answer of the operator's model (ocip.judge) about the message. It is no person's word, and apps and agents are not told it.
    opinion: 'Opinion'
    blocked: str


class AuditAddress(TypedDict, total=False):
    channel: str
    account: str
    target: str


class _AuditDetection(TypedDict):
    rule: str
    start: int
    end: int


class AuditDetection(_AuditDetection, total=False):
    member: str
    zone: str
    shadow: bool


class AuditFault(TypedDict):
    seq: int
    problem: str


class AuditForgetParams(TypedDict):
    # The tenant; an empty text is what belongs to none.
    tenant: str


class AuditForgetResult(TypedDict):
    tenant: str
    auditSeq: int


class AuditHead(TypedDict):
    seq: int
    time: str
    hash: str


class AuditInspectParams(TypedDict, total=False):
    # A record to give, with its receipt.
    seq: int
    # A number of records: the root of the tree over them.
    size: int
    # A smaller number of records: the path that shows that they begin those of size.
    old: int


class _AuditInspection(TypedDict):
    database: str
    last: int


class AuditInspection(_AuditInspection, total=False):
    checkpointSeq: int
    checkpoint: str
    key: str
    tombstone: str
    # The last record.
    tail: 'AuditHead'
    fault: str
    line: str
    receipt: str
    root: str
    path: List[str]


class AuditQueryParams(TypedDict, total=False):
    # Which records.
    filter: Dict[str, Any]
    # At most this many; 100 by default.
    limit: int
    # nextBefore of the page before.
    before: int


class AuditQueryResult(TypedDict):
    records: List[Any]
    nextBefore: int


class AuditRetireParams(TypedDict):
    # Segments that end before this time go.
    before: str


class AuditRetireResult(TypedDict):
    retired: int
    segments: int
    auditSeq: int


class AuditRotateKeyResult(TypedDict):
    verifier: str
    previous: str
    auditSeq: int


class _AuditStats(TypedDict):
    since: str
    until: str
    bucket: int
    verdicts: 'AuditVerdicts'
    buckets: List['AuditStatsBucket']
    agents: List['AuditStatsRow']
    agentCount: int
    rules: List['AuditStatsRow']
    ruleCount: int
    codes: List['AuditStatsRow']
    codeCount: int


class AuditStats(_AuditStats, total=False):
    pairs: List['AuditStatsPair']
    pairCount: int
    kindTimes: List['AuditStatsTime']
    ruleTimes: List['AuditStatsTime']


class AuditStatsBucket(TypedDict):
    start: str
    allow: int
    deny: int
    requireApproval: int
    none: int


class AuditStatsParams(TypedDict, total=False):
    # The first time; that of the first record by default.
    since: str
    # The last time; now by default.
    until: str
    # The length of a bucket in seconds, in whole minutes; chosen by the daemon if absent.
    bucket: int
    # Adds the messages of each pair of sender and receiver, the most frequent 1000.
    pairs: bool


class AuditStatsRow(TypedDict):
    name: str
    allow: int
    deny: int
    requireApproval: int
    none: int


class AuditStatsTime(TypedDict):
    name: str
    decided: int
    p50: float
    p90: float


class _AuditStatus(TypedDict):
    seq: int
    time: str
    hash: str
    mirrored: int
    log: str
    signed: int
    retired: int
    indexed: int
    mirror: 'MirrorStatus'


class AuditStatus(_AuditStatus, total=False):
    unsigned: 'UnsignedRecords'
    damaged: str
    fault: str


class AuditTailParams(TypedDict, total=False):
    # Which records.
    filter: Dict[str, Any]
    # Begins after this record.
    after: int
    # Begins with so many records that are there, if after is absent.
    last: int
    # Goes on with new records.
    follow: bool
    # New records come together, at most once in so many milliseconds.
    gatherMs: int
    # The records are exported; the daemon records that first.
    export: bool


class AuditVerdicts(TypedDict):
    allow: int
    deny: int
    requireApproval: int
    none: int


class _AuditVerifyResult(TypedDict):
    ok: bool
    log: str
    verifier: str
    seq: int
    hash: str
    retired: int
    signed: int
    checkpoints: int
    held: int


class AuditVerifyResult(_AuditVerifyResult, total=False):
    heldUpTo: int
    late: int
    gaps: int
    fault: 'AuditFault'


class BackupNoteParams(TypedDict):
    # The folder of the copy.
    directory: str


class _Beat(TypedDict):
    version: str
    roster: int
    waiting: int
    held: int


class Beat(_Beat, total=False):
    checkpoint: str
    oldestHeld: str
    attached: str
    faults: List[str]


class _Bounds(TypedDict):
    # Keywords and families of cues that a message may have.
    words: List[str]
    # The highest level.
    classification: str
    # The end, in Unix milliseconds.
    until: int


class Bounds(_Bounds, total=False):
    # The last round of the exchange.
    maxRound: int


class _BoundsInput(TypedDict):
    # Keywords and families of cues that a message may have.
    words: List[str]
    # The highest level.
    classification: Literal["public", "internal", "confidential", "restricted"]
    # The end, in Unix milliseconds.
    until: int


class BoundsInput(_BoundsInput, total=False):
    # The last round of the exchange.
    maxRound: int


class CancelParams(TypedDict):
    # The request that opened the stream.
    requestId: str


class Capabilities(TypedDict, total=False):
    # Channels.
    channels: 'Provides'
    # Tools.
    tools: 'Provides'
    # Providers.
    providers: 'Provides'
    # Hooks.
    hooks: 'HookDeclaration'
    # Gateway methods and routes.
    gateway: 'GatewayProvides'
    # Whether the app redeems what was approved (approval.redeem).
    redeem: bool
    # Whether the app acknowledges each message (app.acknowledge). Otherwise a message counts as delivered once the app has read it.
    acknowledges: bool


class CapabilityParams(TypedDict, total=False):
    # channel, tool, hook, gateway_method, http_route or provider. The result refuses others.
    type: str
    # The capability. Its id is in channelId, toolId, event, methodName, route or providerId, by the type.
    config: Dict[str, Any]


class _CapabilityResult(TypedDict):
    capabilityId: str
    granted: bool


class CapabilityResult(_CapabilityResult, total=False):
    reason: str


class _Chain(TypedDict):
    id: str
    hops: int
    path: List[str]
    startedAt: str


class Chain(_Chain, total=False):
    ownTurn: bool


class _Challenge(TypedDict):
    signatureRequired: bool


class Challenge(_Challenge, total=False):
    # For the next signed call on this connection. A second challenge replaces it, and each call uses it up, also one without a valid signature.
    nonce: str


class ChallengeParams(TypedDict):
    # The method that is called next.
    method: str


class _CheckResult(TypedDict):
    result: str
    reason: str
    classification: str
    auditId: str


class CheckResult(_CheckResult, total=False):
    code: str
    reasons: List['Ground']
    rule: str
    type: str
    round: int
    maxRounds: int
    # The findings, by member (none for content) and bytes.
    detections: List['AuditDetection']


class _ClientProcess(TypedDict):
    pid: int
    uid: int


class ClientProcess(_ClientProcess, total=False):
    exe: str


class _CompleteParams(TypedDict):
    # The run.
    runId: str


class CompleteParams(_CompleteParams, total=False):
    # Whether it succeeded.
    success: bool
    # The error if it failed.
    error: str


class ConfigChange(TypedDict):
    path: str
    oldValue: Any
    newValue: Any


class ConfigDiffResult(TypedDict):
    file: str
    changeCount: int
    changes: List['ConfigDifference']
    pendingRestart: List['ConfigDifference']
    overridden: List['ConfigOverride']
    policyRevision: str
    policyChanged: bool


class ConfigDifference(TypedDict):
    key: str
    was: Any
    now: Any


class ConfigGetParams(TypedDict, total=False):
    # A path such as channels.telegram; all that the app may read if it is absent.
    path: str


class ConfigOverride(TypedDict):
    key: str
    by: str


class _ConfigReload(TypedDict):
    changeCount: int
    # The first 64 values that differ, secrets as ***. List entries have their names as keys (agents.alice.max_rounds), so a moved entry is no change.
    changes: List['ConfigDifference']
    # Changed keys that take a restart.
    pendingRestart: List[str]


class ConfigReload(_ConfigReload, total=False):
    inForceSince: str
    by: str
    last: List['ConfigDifference']


class ConfigStatus(TypedDict, total=False):
    refusedAt: str
    refusal: str
    faults: List['PolicyFault']


class ConfigValue(TypedDict):
    value: Any


class ConfigWatchParams(TypedDict, total=False):
    # Paths; all that the app may read if there are none.
    paths: List[str]


class _ConfirmParams(TypedDict):
    # What became of the message.
    outcome: Literal["sent", "not_sent", "unknown"]


class ConfirmParams(_ConfirmParams, total=False):
    # The claim from redeeming.
    claim: str
    # The message that hook.emit allowed.
    dispatchId: str
    # The key of an agent.emit whose answer did not come.
    requestKey: str
    # A note for the record.
    note: str


class _ConsoleReportParams(TypedDict):
    # The event.
    event: Literal["opened", "enrolled", "link_reused", "host_refused", "origin_refused", "session_refused", "peer_refused"]


class ConsoleReportParams(_ConsoleReportParams, total=False):
    # The process at the other end, as pid@start.
    process: str
    # peer_refused: the user of the connection, if the system says it.
    uid: int
    # host_refused, origin_refused: the refused Host or Origin.
    value: str
    # enrolled: the digest of the list of signers.
    digest: str
    # enrolled: the fingerprint of the passkey.
    fingerprint: str


class _Contact(TypedDict):
    sessionKey: str
    agent: str
    lastActiveAt: str
    messageCount: int
    kind: str


class Contact(_Contact, total=False):
    instanceId: str
    userId: str
    tenantId: str
    # Several people read the session.
    group: bool
    # Known from an envelope and not from the configuration.
    learned: bool
    # With several tenants, those whose agents got the envelope; * is unknown, from an older version of ocipd.
    seenBy: List[str]


class _ContactForgetParams(TypedDict):
    # The session.
    sessionKey: str


class ContactForgetParams(_ContactForgetParams, total=False):
    # A note for the record.
    note: str


class _ContactForgetResult(TypedDict):
    changed: bool


class ContactForgetResult(_ContactForgetResult, total=False):
    instanceId: str
    tenantId: str
    auditSeq: int


class ContactListParams(TypedDict, total=False):
    # Sessions of this agent.
    agent: str
    # Sessions of this channel.
    channel: str
    # At most this many; 100 by default.
    limit: int
    # Skip this many.
    offset: int


class _ContactListResult(TypedDict):
    contacts: List['Contact']
    total: int


class ContactListResult(_ContactListResult, total=False):
    # Rows that something else than the daemon changed: the list leaves out what needs them.
    altered: List[str]


class Description(TypedDict):
    protocolVersion: str
    version: str
    methods: List['MethodDescription']


class _DispatchParams(TypedDict):
    # The session that the message goes to.
    sessionKey: str


class DispatchParams(_DispatchParams, total=False):
    # The text. Required unless metadata names media.
    content: str
    # Members for the receiver; some are hints to the daemon.
    metadata: Dict[str, Any]


class _DispatchResult(TypedDict):
    # The message's id, the same in its record, its delivery and each repetition of it.
    dispatchId: str
    # true for every accepted message, also a held one: a client of the stock SDK repeats a message with false.
    queued: bool


class DispatchResult(_DispatchResult, total=False):
    # The message is on disk and not yet with its receiver, because the app is away, not ready, or has others to read first.
    waiting: bool
    # The host of the fleet on which the receiver is. The message is on its way there; message:receipt tells what that host has decided.
    host: str
    # A person decides. The caller must not send the message again; the same call gets the same approvalId.
    held: bool
    approvalId: str
    ocip: 'ExchangeRef'


class _DroppedMessage(TypedDict):
    dispatchId: str
    queue: str
    auditSeq: int


class DroppedMessage(_DroppedMessage, total=False):
    # The reader may have acted on the message: it had it when its connection ended. The daemon does not know that for deliveries before its last start.
    given: bool


class _EmitParams(TypedDict):
    # The hook.
    hookName: str
    # Of message_sending and message_received: sessionKey, content, metadata, dispatchId, disclosure. Of others: any object.
    data: Dict[str, Any]


class EmitParams(_EmitParams, total=False):
    # The agent, session, channel and account.
    context: 'HookContextInput'


class _EmitResult(TypedDict):
    allowed: bool


class EmitResult(_EmitResult, total=False):
    data: Any
    reason: str
    ocip: Any
    held: bool
    approvalId: str
    exemptUntil: int


class Escalation(TypedDict):
    exchangeId: str
    conversationId: str
    currentRound: int
    maxRounds: int
    conversationSummary: str
    reason: str


class EventMessage(TypedDict):
    """Something that the daemon tells an app by itself."""

    id: str
    type: Literal["event"]
    # Unix milliseconds.
    timestamp: float
    event: str
    payload: Any


class _Exchange(TypedDict):
    exchangeId: str
    conversationId: str
    type: str
    agent: str
    counterparty: str
    sessionKey: str
    outcome: str
    currentRound: int
    maxRounds: int
    classification: str
    openedAt: int
    updatedAt: int
    expiresAt: int
    transcript: List['Turn']
    dataShared: List['Shared']
    dataWithheld: List['Withheld']


class Exchange(_Exchange, total=False):
    # A digest of the sides (outcome, round, time of the last change), the held requests, and the stop of the two agents. Every message, decision and settlement changes it.
    state: str
    # A person has to settle the exchange: a request is pending, or its rounds are used up and nobody has settled that.
    pending: bool


class ExchangeListParams(TypedDict, total=False):
    # An agent's instance id.
    agent: str
    # The other agent's instance id.
    counterparty: str
    # The outcome.
    outcome: str
    # At most this many; 100 by default.
    limit: int
    # The last exchange of the page before.
    before: str


class ExchangeParams(TypedDict):
    # The exchange.
    exchangeId: str


class _ExchangeRef(TypedDict):
    conversationId: str
    round: int
    maxRounds: int
    # The id of the decision's record (ocipd audit query --record ID).
    auditId: str


class ExchangeRef(_ExchangeRef, total=False):
    # Present if the counterparty is an agent.
    exchangeId: str
    code: str
    reason: str
    reasons: List['Ground']
    requiresHuman: bool
    detectedKeywords: List[str]
    escalation: 'Escalation'
    escalatedExchange: str
    blocked: str
    chain: 'Chain'


class _ExchangeResolveParams(TypedDict):
    # The exchange.
    exchangeId: str
    # The outcome.
    outcome: Literal["resolved"]


class ExchangeResolveParams(_ExchangeResolveParams, total=False):
    # An agent's instance id, if several pairs of agents use the id.
    agent: str
    # A note for the record.
    note: str
    # The state that the person saw, from exchange.get. Required if decisions are signed.
    state: str
    # An armored SSH signature over the settlement.
    signature: str


class _ExchangeResult(TypedDict):
    exchanges: List['Exchange']


class ExchangeResult(_ExchangeResult, total=False):
    # Rows that something else than the daemon changed: the list leaves out what needs them.
    altered: List[str]


class Extract(TypedDict):
    member: str
    at: int
    of: int
    text: str


class FleetBringParams(TypedDict):
    # The frame, in base64: at most 512 KiB.
    frame: str


class FleetBringResult(TypedDict, total=False):
    receipt: 'FleetFrame'
    waits: bool
    next: int


class FleetFrame(TypedDict):
    to: str
    toEpoch: int
    kind: str
    seq: int
    frame: str


class _FleetHost(TypedDict):
    host: str
    epoch: int
    agents: List[str]
    waiting: int


class FleetHost(_FleetHost, total=False):
    heard: str
    mailbox: str
    refused: int
    beat: 'Beat'
    beatAt: str
    silent: bool
    shrunk: 'Shrunk'


class FleetStatus(TypedDict):
    tenant: str
    host: str
    version: int
    digest: str
    member: bool
    lines: int
    hosts: List['FleetHost']


class GatewayProvides(TypedDict, total=False):
    # Gateway methods.
    methods: List[str]
    # HTTP routes.
    httpRoutes: List[str]


class _Grant(TypedDict):
    grantId: str
    kind: str
    # in_force, revoked, expired, used_up, or over if the exchange has ended.
    state: str
    agent: str
    receiver: str
    # Keywords and families of cues that a message may have.
    words: List[str]
    # The highest level.
    classification: str
    # The end, in Unix milliseconds.
    until: int
    uses: int
    madeAt: int
    people: List['ApprovalDecision']


class Grant(_Grant, total=False):
    exchangeId: str
    conversationId: str
    approvalId: str
    # The last round of the exchange.
    maxRound: int
    maxUses: int


class _GrantAddParams(TypedDict):
    # An id of the person's choice, good once.
    grantId: str
    # The sender's instance id.
    agent: str
    # An instance id or a session key.
    receiver: str
    # Keywords and families of cues that a message may have.
    words: List[str]
    # The highest level.
    classification: Literal["public", "internal", "confidential", "restricted"]
    # The end, in Unix milliseconds.
    until: int
    # An armored SSH signature over the pre-approval.
    signature: str


class GrantAddParams(_GrantAddParams, total=False):
    # The last round of the exchange.
    maxRound: int
    # How many messages it lets pass.
    maxUses: int
    # The restored of grant.list.
    restored: str
    # A note for the record.
    note: str


class GrantAddResult(TypedDict):
    grant: 'Grant'
    auditSeq: int


class GrantListParams(TypedDict, total=False):
    # The sender's id or instance id.
    agent: str
    # The kind.
    kind: Literal["exchange", "standing"]
    # Also those that are not in force.
    all: bool
    # At most this many; 1,000 by default.
    limit: int
    # next of the page before.
    after: str


class _GrantListResult(TypedDict):
    grants: List['Grant']


class GrantListResult(_GrantListResult, total=False):
    next: str
    # The id of the newest state_restored record.
    restored: str


class _GrantRevokeParams(TypedDict):
    # The pre-approval.
    grantId: str


class GrantRevokeParams(_GrantRevokeParams, total=False):
    # A note for the record.
    note: str


class _GrantRevokeResult(TypedDict):
    changed: bool


class GrantRevokeResult(_GrantRevokeResult, total=False):
    auditSeq: int


class _Ground(TypedDict):
    code: str
    rule: str
    reason: str


class Ground(_Ground, total=False):
    likelihood: str
    likelyBecause: str
    chance: int
    open: bool


class HeartbeatParams(TypedDict, total=False):
    # Shown to operators.
    status: Dict[str, Any]


class HeartbeatResult(TypedDict):
    ok: bool
    serverTime: int


class _HookContext(TypedDict):
    # Unix milliseconds. The daemon sets it.
    timestamp: int


class HookContext(_HookContext, total=False):
    # The agent.
    agentId: str
    # The session.
    sessionKey: str
    # The channel.
    channelId: str
    # The account.
    accountId: str
    # The id of the decision's record. The daemon sets it.
    auditId: str


class HookContextInput(TypedDict, total=False):
    # The agent.
    agentId: str
    # The session.
    sessionKey: str
    # The channel.
    channelId: str
    # The account.
    accountId: str
    # Unix milliseconds. The daemon sets it.
    timestamp: int
    # The id of the decision's record. The daemon sets it.
    auditId: str


class HookDeclaration(TypedDict, total=False):
    # Hooks that the app observes.
    subscribes: List[str]
    # Hooks that the app intercepts.
    intercepts: List[str]


class HookEvent(TypedDict):
    eventId: str
    hookName: str
    data: Any
    context: 'HookContext'


class _HookResultParams(TypedDict):
    # The id of the event that is answered.
    eventId: str


class HookResultParams(_HookResultParams, total=False):
    # Of an interceptor: an object, whose content and metadata take the place of the message's, or {block: true, reason}; null or none blocks. Of a receiver: {delivered, error}.
    result: Any


class HooksParams(TypedDict):
    # Names of hooks.
    events: List[str]


class _Inbound(TypedDict):
    runId: str
    sessionKey: str
    content: str


class Inbound(_Inbound, total=False):
    replyTo: str
    metadata: Dict[str, Any]
    dispatchId: str


class JudgeParams(TypedDict):
    # The approval request.
    approvalId: str
    # The digest of the request that the model was shown.
    digest: str
    # The model, as ocip.judge names it.
    model: str
    # The digest of the question; it has to be the daemon's.
    promptDigest: str
    # The model's answer, byte for byte.
    answer: str


class JudgeResult(TypedDict):
    state: str
    # true if the answer released the message.
    released: bool
    # The record's number.
    auditSeq: int


class KeptMessage(TypedDict):
    dispatchId: str
    reason: str


class LaggingEvent(TypedDict):
    reason: str


class LatencyStatus(TypedDict):
    decisions: int
    decisionP50Us: int
    decisionP99Us: int
    commitP50Us: int
    commitP99Us: int


class _Manifest(TypedDict):
    # A package name such as @acme/telegram.
    id: str
    # A name for people.
    name: str
    # A semantic version.
    version: str
    # The kind of package.
    type: Literal["app", "skill", "agent", "extension"]


class Manifest(_Manifest, total=False):
    # The file that runs. Required unless the type is agent.
    main: str
    # The model of the app's agent, as the app says. No decision depends on it.
    model: str
    # The protocol that the app speaks.
    protocol: 'ManifestProtocol'
    # What the app provides and wants. Nothing beyond it is granted.
    capabilities: 'Capabilities'


class ManifestProtocol(TypedDict):
    # The version, with the major number 1.
    version: str


class _MediaItem(TypedDict):
    member: str


class MediaItem(_MediaItem, total=False):
    url: str
    path: str
    sha256: str
    bytes: int


class _Message(TypedDict):
    content: str


class Message(_Message, total=False):
    channelId: str
    target: str
    metadata: Dict[str, Any]
    dispatchId: str


class _MessageReceipt(TypedDict):
    dispatchId: str
    sessionKey: str
    host: str
    result: str
    log: str
    record: int
    timestamp: int


class MessageReceipt(_MessageReceipt, total=False):
    code: str
    reason: str
    hash: str


class _MethodDescription(TypedDict):
    name: str
    access: str
    stream: bool
    params: Any
    result: Any


class MethodDescription(_MethodDescription, total=False):
    opening: Any


class _MethodEntry(TypedDict):
    name: str
    access: str
    pace: str


class MethodEntry(_MethodEntry, total=False):
    signing: str


class MethodList(TypedDict):
    methods: List['MethodEntry']


class _MirrorStatus(TypedDict):
    segments: int
    pending: int
    segmentBytes: int


class MirrorStatus(_MirrorStatus, total=False):
    problems: List[str]


class _OK(TypedDict):
    ok: bool


class OK(_OK, total=False):
    reason: str


class Opinion(TypedDict):
    commits: bool
    reason: str
    model: str
    promptDigest: str
    at: int


class PauseParams(TypedDict, total=False):
    # The agent's id or instance id.
    agent: str
    # The channel. All is meant if neither is given.
    channel: str
    # A note for the record.
    note: str


class _PauseResult(TypedDict):
    changed: bool
    paused: List['PausedScope']


class PauseResult(_PauseResult, total=False):
    auditSeq: int


class _PausedScope(TypedDict):
    scope: str
    since: str
    by: str


class PausedScope(_PausedScope, total=False):
    agent: str
    channel: str


class PeerCheckParams(TypedDict):
    # The processes, each as pid@start: the process id, and the start time in field 22 of /proc/PID/stat.
    processes: List[str]


class PeerCheckResult(TypedDict, total=False):
    # The first process that has ended, cannot be seen, is another user's than the caller, or is an app or actor of tasks or was started by one. Absent if all may be answered.
    refused: 'RefusedProcess'


class PolicyFault(TypedDict):
    file: str
    line: int
    message: str


class PolicyReloadResult(TypedDict):
    # sha256: and the first 12 digits of digest.
    revision: str
    # Covers names and texts of the policy's files and policy.data.
    digest: str
    # false if the policy was already in force.
    changed: bool
    files: List[str]
    config: 'ConfigReload'


class _PolicyStatus(TypedDict):
    source: str
    revision: str


class PolicyStatus(_PolicyStatus, total=False):
    refusedAt: str
    refusal: str
    faults: List['PolicyFault']


class ProfileChunk(TypedDict):
    data: str


class _ProfileParams(TypedDict):
    # The profile.
    name: Literal["allocs", "cpu", "goroutine", "heap", "threadcreate"]


class ProfileParams(_ProfileParams, total=False):
    # How long the processor is watched; 10 by default.
    seconds: int


class _ProtocolError(TypedDict):
    code: 'ErrorCode'
    message: str


class ProtocolError(_ProtocolError, total=False):
    details: Any


class Provides(TypedDict, total=False):
    # Their names.
    provides: List[str]


class _QueueDropParams(TypedDict):
    # The messages.
    dispatchIds: List[str]


class QueueDropParams(_QueueDropParams, total=False):
    # The queue in which alone they are looked for.
    queue: str
    # A note for the record.
    note: str


class QueueDropResult(TypedDict):
    dropped: List['DroppedMessage']
    kept: List['KeptMessage']


class QueueListParams(TypedDict, total=False):
    # The queue.
    queue: str
    # The sender or the receiver.
    agent: str
    # The channel.
    channel: str
    # At most this many; 100 by default.
    limit: int
    # next of the page before.
    after: str


class _QueueListResult(TypedDict):
    messages: List['QueuedMessage']


class QueueListResult(_QueueListResult, total=False):
    next: str


class _QueueParams(TypedDict):
    # The session that the message came in.
    sessionKey: str


class QueueParams(_QueueParams, total=False):
    # The text. Required unless metadata names media.
    text: str
    # Members for the agent; the annotation of another agent is among them.
    metadata: Dict[str, Any]


class QueueResult(TypedDict):
    runId: str
    queued: bool


class QueueStatus(TypedDict):
    name: str
    waiting: int


class _QueuedMessage(TypedDict):
    queue: str
    dispatchId: str
    auditSeq: int
    event: str
    summary: str
    bytes: int


class QueuedMessage(_QueuedMessage, total=False):
    sender: str
    receiver: str
    channel: str
    sessionKey: str
    expiresAt: str
    paused: str
    # The message is on its way to its app, at its reader, or may be with a carrier.
    handed: bool


class ReadyParams(TypedDict, total=False):
    # Ignored.
    metadata: Any


class _RedeemParams(TypedDict):
    # The approval request.
    approvalId: str


class RedeemParams(_RedeemParams, total=False):
    # A name of the caller's own. A repetition with it gets the same answer until the outcome is confirmed.
    requestKey: str


class _Redeemable(TypedDict):
    approvalId: str
    dispatchId: str
    sessionKey: str
    expiresAt: int


class Redeemable(_Redeemable, total=False):
    origin: str


class RedeemableResult(TypedDict):
    approvals: List['Redeemable']


class _Redeemed(TypedDict):
    claim: str
    data: Any


class Redeemed(_Redeemed, total=False):
    replayed: bool


class RefusedProcess(TypedDict):
    process: str
    why: str


class RegisterParams(TypedDict):
    # The package that registers.
    manifest: 'Manifest'


class RegisterResult(TypedDict):
    appId: str
    token: str
    protocolVersion: str


class _RequestMessage(TypedDict):
    id: str
    type: Literal["request"]
    method: str


class RequestMessage(_RequestMessage, total=False):
    """A request. Every app's request after app.register has its token."""

    # Unix milliseconds.
    timestamp: float
    # The method's parameters. None is {}.
    params: Any
    token: str
    signature: str


class RunCompleted(TypedDict):
    runId: str
    sessionKey: str
    success: bool
    error: str


class RunStarting(TypedDict):
    runId: str
    agentId: str
    sessionKey: str


class RunnerChunk(TypedDict, total=False):
    directory: str
    key: str
    run: 'RunnerOrder'
    kill: 'RunnerRef'


class _RunnerOrder(TypedDict):
    # The task's id.
    task_id: str
    # The effect's id.
    effect_id: str
    # The run's number.
    run: int
    workspace: str
    command: 'TaskAction'
    bound: 'TaskBound'
    started_at: str


class RunnerOrder(_RunnerOrder, total=False):
    compensation: bool
    begun: str


class RunnerRef(TypedDict):
    # The task's id.
    task_id: str
    # The effect's id.
    effect_id: str
    # The run's number.
    run: int


class _RunnerReportParams(TypedDict):
    # The task's id.
    task_id: str
    # The effect's id.
    effect_id: str
    # The run's number.
    run: int
    # A process waits to start the command, it has ended without the command, the command has a process, or it ended.
    event: Literal["waits", "withdrawn", "spawned", "finished"]


class RunnerReportParams(_RunnerReportParams, total=False):
    # The waiting process, by its pid and start. Required with waits and withdrawn.
    process: str
    # The command's process. Required with spawned.
    pid: int
    # The outcome. Required with finished.
    state: Literal["done", "failed", "outcome_unknown"]
    # The known facts about a run with an unknown outcome.
    evidence: str
    # The run's receipt.
    receipt: Any


class _SendParams(TypedDict):
    # The session that the message goes to.
    sessionKey: str


class SendParams(_SendParams, total=False):
    # The agent's id or instance id. It can be absent if there is one agent.
    agent: str
    # The text. Required unless metadata names media.
    content: str
    # Members for the receiver; some are hints to the daemon.
    metadata: Dict[str, Any]


class _SessionEntry(TypedDict):
    key: str
    createdAt: int
    lastActiveAt: int
    messageCount: int


class SessionEntry(_SessionEntry, total=False):
    agentId: str
    channelId: str
    # The metadata.accountId of the first message.
    accountId: str


class SessionFilter(TypedDict, total=False):
    # Sessions of this agent.
    agentId: str
    # Sessions of this channel.
    channelId: str
    # Sessions of this account.
    accountId: str
    # Sessions that were used lately, or were not.
    active: bool


class SessionGetParams(TypedDict):
    # A session key.
    key: str


class SessionListParams(TypedDict, total=False):
    # Which sessions; all if it is absent.
    filter: 'SessionFilter'
    # At most this many; 100 by default.
    limit: int
    # Skip this many.
    offset: int


class SessionListResult(TypedDict):
    sessions: List['SessionEntry']
    total: int


class SessionResult(TypedDict):
    session: Union['SessionEntry', None]


class SessionStarted(TypedDict):
    sessionKey: str
    agentId: str


class Shared(TypedDict):
    source: str
    fields: List[str]


class Shrunk(TypedDict):
    before: str
    after: str


class ShutdownParams(TypedDict, total=False):
    # The reason, for the record.
    reason: str
    # Milliseconds that the daemon waits for requests in flight; 0 is its own limit.
    timeout: int


class _SinkStatus(TypedDict):
    name: str
    type: str
    seq: int
    lag: int
    sent: int
    refused: int


class SinkStatus(_SinkStatus, total=False):
    oldestUnsent: str
    error: str
    failingSince: str
    note: str


class _Status(TypedDict):
    version: str
    protocolVersion: str
    pid: int
    startedAt: str
    socket: str
    operatorSocket: str
    configFile: str
    database: str
    mirror: str
    connections: int
    apps: List['AppStatus']
    agents: List['AgentStatus']
    queues: List['QueueStatus']
    exchanges: Dict[str, int]
    held: int
    paused: List['PausedScope']
    sessions: int
    latency: 'LatencyStatus'
    policy: 'PolicyStatus'
    config: 'ConfigStatus'
    pendingRestart: List[str]
    audit: 'AuditStatus'
    sinks: List['SinkStatus']
    store: 'StoreStatus'


class Status(_Status, total=False):
    # A socket that was passed while another one is configured.
    unusedSocket: str
    ungated: List['UngatedProcess']
    oldestHeld: str
    witnesses: List['WitnessStatus']


class StoreSnapshot(TypedDict):
    database: str
    path: str
    bytes: int


class StoreStatus(TypedDict):
    disk: str
    freeBytes: int
    reserve: bool


class StreamMessage(TypedDict):
    """A chunk of a streaming answer. The last one is null and has done set."""

    id: str
    type: Literal["stream"]
    # Unix milliseconds.
    timestamp: float
    requestId: str
    chunk: Any
    done: bool


class SubscribeResult(TypedDict):
    subscribed: List[str]
    denied: List[str]


class _TaskAction(TypedDict):
    # The program and its arguments.
    argv: List[str]


class TaskAction(_TaskAction, total=False):
    # The working folder, within the workspace.
    cwd: str
    # Variables.
    env: Dict[str, str]
    # Names of variables of the runner, such as credentials.
    env_from: List[str]
    # The standard input.
    stdin: str
    # Artifacts and files of the workspace that the command reads, by id or path.
    inputs: List[str]
    # The seconds until the runner ends the command; 0 is its usual limit.
    timeout_s: int


class _TaskActionInput(TypedDict):
    # The program and its arguments.
    argv: List[str]


class TaskActionInput(_TaskActionInput, total=False):
    # The working folder, within the workspace.
    cwd: str
    # Variables.
    env: Dict[str, str]
    # Names of variables of the runner, such as credentials.
    env_from: List[str]
    # The standard input.
    stdin: str
    # Artifacts and files of the workspace that the command reads, by id or path.
    inputs: List[str]
    # The seconds until the runner ends the command; 0 is its usual limit.
    timeout_s: int


class _TaskApproval(TypedDict):
    approval_id: str
    effect_id: str
    status: str
    request_digest: str
    requested_by: str
    asked_at: str
    expires_at: str


class TaskApproval(_TaskApproval, total=False):
    bound: Any
    resolved_by: str
    resolved_at: str
    note: str
    needed: int
    used: bool
    void: bool
    self_approved: bool
    undo: int


class _TaskApprovalRequested(TypedDict):
    task_id: str
    phase: str
    revision: int
    approval_id: str
    effect_id: str
    status: str
    request_digest: str
    expires_at: str


class TaskApprovalRequested(_TaskApprovalRequested, total=False):
    audit_seq: int
    replayed: bool


class _TaskApprovalResolved(TypedDict):
    task_id: str
    phase: str
    revision: int
    status: str
    needed: int
    given: int


class TaskApprovalResolved(_TaskApprovalResolved, total=False):
    audit_seq: int
    replayed: bool


class _TaskArtifact(TypedDict):
    artifact_id: str
    attempt_id: str
    kind: str
    uri: str
    digest: str
    verified: bool
    actor: str
    work: bool
    current: bool
    artifact_revision: int
    at: str


class TaskArtifact(_TaskArtifact, total=False):
    size: int
    summary: str
    undeclared: bool
    claimed_by: str
    by: 'TaskPrincipal'


class _TaskArtifactParams(TypedDict):
    # The task's id.
    task_id: str
    # The attempt's id.
    attempt_id: str
    # The kind of artifact.
    kind: Literal["primary_output", "test_report", "diff", "review_report", "other"]
    # The file's path in the workspace, or another address.
    uri: str
    # The caller's name.
    produced_by: str


class TaskArtifactParams(_TaskArtifactParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # A sentence about it.
    summary: str
    # sha256: and the SHA-256 in hexadecimal digits. Required unless uri is a file in the workspace.
    digest: str
    # The attempt's fence from task.start_attempt.
    fence: int


class _TaskArtifactRecorded(TypedDict):
    task_id: str
    phase: str
    revision: int
    artifact_id: str
    artifact_revision: int
    digest: str
    verified: bool


class TaskArtifactRecorded(_TaskArtifactRecorded, total=False):
    audit_seq: int
    replayed: bool


class _TaskAskPermissionParams(TypedDict):
    # The task's id.
    task_id: str


class TaskAskPermissionParams(_TaskAskPermissionParams, total=False):
    # The attempt's id.
    attempt_id: str
    # The call.
    tool_call: 'TaskToolCall'
    # The answers that the runtime offers its user.
    options: Any


class TaskAttachParams(TypedDict):
    # The grant's token.
    token: str


class _TaskAttached(TypedDict):
    grant_id: str
    actor: str
    role: str
    tools: List[str]
    expires_at: str


class TaskAttached(_TaskAttached, total=False):
    agent: str
    tenant_id: str
    task_id: str
    attempt_id: str
    fence: int


class _TaskAttempt(TypedDict):
    attempt_id: str
    ordinal: int
    actor: str
    status: str
    fence: int
    runtime: str
    executor_kind: str
    escalate: bool
    started_at: str
    lease_expires_at: str
    checkpoints: int


class TaskAttempt(_TaskAttempt, total=False):
    worker_ref: str
    external_session_ref: str
    ended_at: str
    ended_by: str
    retry_at: str
    failure_code: str
    error_summary: str
    by: List['TaskPrincipal']
    last_checkpoint: 'TaskCheckpoint'


class _TaskAttemptFinished(TypedDict):
    task_id: str
    phase: str
    revision: int
    status: str


class TaskAttemptFinished(_TaskAttemptFinished, total=False):
    audit_seq: int
    replayed: bool
    retry_at: str
    warning: str


class _TaskAttemptStarted(TypedDict):
    task_id: str
    phase: str
    revision: int
    attempt_id: str
    ordinal: int
    fence: int
    escalate: bool


class TaskAttemptStarted(_TaskAttemptStarted, total=False):
    audit_seq: int
    replayed: bool


class _TaskBound(TypedDict):
    exe: 'TaskProgram'
    inputs: List['TaskInput']


class TaskBound(_TaskBound, total=False):
    folder: str
    named: List['TaskNamed']


class _TaskCancelEffectParams(TypedDict):
    # The task's id.
    task_id: str
    # The effect's id.
    effect_id: str


class TaskCancelEffectParams(_TaskCancelEffectParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str


class _TaskChanged(TypedDict):
    task_id: str
    phase: str
    revision: int


class TaskChanged(_TaskChanged, total=False):
    audit_seq: int
    replayed: bool


class _TaskCheckpoint(TypedDict):
    checkpoint_type: str
    actor: str
    at: str


class TaskCheckpoint(_TaskCheckpoint, total=False):
    payload: Any


class _TaskCheckpointParams(TypedDict):
    # The task's id.
    task_id: str
    # The attempt's id.
    attempt_id: str
    # heartbeat renews the lease. Any other word, such as progress, is kept as a checkpoint.
    checkpoint_type: str
    # The content of the checkpoint. Empty for a mere heartbeat.
    payload: Dict[str, Any]


class TaskCheckpointParams(_TaskCheckpointParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # The attempt's fence from task.start_attempt.
    fence: int


class _TaskCheckpointed(TypedDict):
    task_id: str
    phase: str
    revision: int
    cancel: bool


class TaskCheckpointed(_TaskCheckpointed, total=False):
    audit_seq: int
    replayed: bool
    lease_expires_at: str


class TaskClaim(TypedDict):
    actor: str
    until: str
    lease_ms: int


class _TaskClaimParams(TypedDict):
    # The task's id.
    task_id: str


class TaskClaimParams(_TaskClaimParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # The seconds of the claim; 60 by default, and 0 gives the task back.
    lease_s: int


class _TaskClaimed(TypedDict):
    task_id: str
    phase: str
    revision: int


class TaskClaimed(_TaskClaimed, total=False):
    audit_seq: int
    replayed: bool
    claimed_until: str


class _TaskCloseCircuitParams(TypedDict):
    # The task's id.
    task_id: str
    # The next phase.
    to_phase: Literal["spec_draft", "spec_review", "execution_ready", "executing", "spec_gate", "quality_gate", "awaiting_approval", "ready_to_resume", "completed", "failed", "circuit_open"]
    # The reason, for the record.
    reason: str


class TaskCloseCircuitParams(_TaskCloseCircuitParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str


class _TaskCreateParams(TypedDict):
    # A short title.
    title: str
    # The absolute path of the working folder, or a name.
    workspace: str
    # The first phase. spec_review needs a complete specification.
    initial_phase: Literal["spec_draft", "spec_review"]


class TaskCreateParams(_TaskCreateParams, total=False):
    # The specification as Markdown, with the headings Goal, Scope, Non-goals, Inputs, Outputs, Acceptance criteria and Risks, or these names in Chinese, Dutch, French, German, Italian, Japanese, Portuguese or Spanish. Required unless spec_ref or spec is given.
    spec_markdown: str
    # A file in the workspace that holds the specification, in place of spec_markdown.
    spec_ref: 'TaskSpecRef'
    # The specification as fields. They take precedence over the Markdown.
    spec: 'TaskFields'
    # Labels.
    labels: List[str]
    # 0 is the most urgent; 2 by default.
    priority: int
    # Ids of tasks that must be completed first.
    depends_on: List[str]
    # The task's effects on the world at its end. Each needs a person's approval.
    effects: List['TaskPlanned']
    # The task's tenant, if a person creates it and there are several.
    tenant_id: str
    # The level of the task's texts. A text can raise it.
    classification: Literal["public", "internal", "confidential", "restricted"]
    # The earliest start, RFC 3339.
    not_before: str
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str


class _TaskCreated(TypedDict):
    task_id: str
    phase: str
    revision: int
    missing: List['TaskMissing']


class TaskCreated(_TaskCreated, total=False):
    audit_seq: int
    replayed: bool


class _TaskEffect(TypedDict):
    effect_id: str
    # A name of the effect within the task. A second request with it is the same effect.
    idempotency_key: str
    # The kind of effect, in a word: deployment, merge, notification, …
    side_effect_kind: str
    type: str
    origin: str
    state: str
    planned_by: str
    runs: List['TaskRun']
    at: str


class TaskEffect(_TaskEffect, total=False):
    # The action, in a sentence that a person can decide about. Required to request an approval.
    requested_action: str
    # The program to run. The approval binds program, arguments, environment and inputs by their digests.
    command: 'TaskAction'
    # The parameters of an effect that is no command, for its executor.
    params: Any
    # A command that undoes the effect. It is approved together with the effect.
    compensation: 'TaskAction'
    late: bool
    request_digest: str
    receipt: Any


class _TaskEffectPlanned(TypedDict):
    task_id: str
    phase: str
    revision: int
    effect_id: str
    state: str


class TaskEffectPlanned(_TaskEffectPlanned, total=False):
    audit_seq: int
    replayed: bool


class _TaskEffectRun(TypedDict):
    task_id: str
    phase: str
    revision: int
    effect_id: str
    state: str
    run: int


class TaskEffectRun(_TaskEffectRun, total=False):
    audit_seq: int
    replayed: bool
    receipt: Any
    run_token: str


class _TaskEffectState(TypedDict):
    task_id: str
    phase: str
    revision: int
    effect_id: str
    state: str


class TaskEffectState(_TaskEffectState, total=False):
    audit_seq: int
    replayed: bool


class _TaskEvent(TypedDict):
    task_id: str
    n: int
    event: str
    at: str
    actor: str
    role: str


class TaskEvent(_TaskEvent, total=False):
    seq: int
    attempt_id: str
    was: Dict[str, Any]
    now: Dict[str, Any]
    reason: str
    phase: str
    revision: int


class TaskFields(TypedDict, total=False):
    # The goal, in a sentence.
    goal: str
    # The parts of the task.
    scope_in: List[str]
    # The parts that do not belong to the task.
    scope_out: List[str]
    # The inputs of the task.
    inputs: List[str]
    # The results of the task.
    outputs: List[str]
    # The criteria of a completed task. Each can be checked.
    acceptance_criteria: List[str]
    # The risks.
    risks: List[str]


class _TaskFinding(TypedDict):
    # The severity.
    severity: str
    # The fault, and how to correct it.
    message: str


class TaskFinding(_TaskFinding, total=False):
    # The file.
    file: str
    # The line.
    line: int
    # The artifact.
    artifact_uri: str


class _TaskFindingInput(TypedDict):
    # The severity.
    severity: Literal["critical", "major", "minor"]
    # The fault, and how to correct it.
    message: str


class TaskFindingInput(_TaskFindingInput, total=False):
    # The file.
    file: str
    # The line.
    line: int
    # The artifact.
    artifact_uri: str


class _TaskFinishAttemptParams(TypedDict):
    # The task's id.
    task_id: str
    # The attempt's id.
    attempt_id: str
    # The outcome.
    outcome: Literal["succeeded", "failed", "aborted"]


class TaskFinishAttemptParams(_TaskFinishAttemptParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # The cause of a failure. Required with failed, and given with nothing else.
    failure_code: Literal["agent_error", "timeout", "lease_expired", "crashed", "max_tokens", "max_turns", "invalid_output", "refused", "cancelled", "environment"]
    # The failure in a sentence.
    error_summary: str
    # The attempt's fence from task.start_attempt.
    fence: int


class _TaskFinishEffectParams(TypedDict):
    # The task's id.
    task_id: str
    # The effect's id.
    effect_id: str
    # The run's number.
    run: int
    # The run's token from task.run_effect.
    run_token: str
    # The outcome.
    outcome: Literal["done", "failed"]


class TaskFinishEffectParams(_TaskFinishEffectParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # Evidence of the outcome.
    receipt: Any


class TaskGate(TypedDict):
    needed: int
    approved: List[str]
    against: List[str]


class TaskGates(TypedDict):
    spec: 'TaskGate'
    quality: 'TaskGate'


class _TaskGetParams(TypedDict):
    # The task's id.
    task_id: str


class TaskGetParams(_TaskGetParams, total=False):
    # The number of newest events in the answer; 20 by default.
    include_events_limit: int
    # One list of the task, without the others. The answer's more names the lists that were cut.
    part: Literal["specs", "attempts", "artifacts", "reviews", "effects", "approvals", "checkpoints", "events"]
    # With part: the id of the entry before the first one in the answer.
    after: str


class _TaskGrantLine(TypedDict):
    grant_id: str
    tools: List[str]
    issued_by: str
    issued_at: str
    expires_at: str


class TaskGrantLine(_TaskGrantLine, total=False):
    actor: str
    role: str
    agent: str
    tenant_id: str
    task_id: str
    attempt_id: str
    bind: str
    holder: 'TaskHolder'
    under: str
    last_used_at: str


class TaskGrantParams(TypedDict, total=False):
    # The task. Only a person can leave it out, for an orchestrator or an agent.
    task_id: str
    # The actor's name. Required with task_id, and without agent.
    actor: str
    # The agent that the token sends and reads for. Only a person can give it.
    agent: str
    # The executor's attempt.
    attempt_id: str
    # The tools of the grant; those of the role by default.
    tools: List[str]
    # The seconds until the grant ends.
    expires_s: int
    # The processes that may attach after the first: the same program (default), the same process, or any.
    bind: Literal["program", "process", "none"]
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str


class _TaskGranted(TypedDict):
    task_id: str
    phase: str
    revision: int
    grant_id: str
    actor: str
    role: str
    tools: List[str]
    expires_at: str


class TaskGranted(_TaskGranted, total=False):
    audit_seq: int
    replayed: bool
    token: str
    agent: str
    attempt_id: str
    fence: int


class _TaskGrants(TypedDict):
    grants: List['TaskGrantLine']


class TaskGrants(_TaskGrants, total=False):
    next: str


class TaskGrantsParams(TypedDict, total=False):
    # The grants that are good for this task: its own, and those of its tenant for any task.
    task_id: str
    # The grants of this actor or agent.
    actor: str
    # The most grants in the answer.
    limit: int
    # The answer's next: continues a list.
    after: str


class _TaskHolder(TypedDict):
    uid: int


class TaskHolder(_TaskHolder, total=False):
    exe: str
    process: str


class _TaskImportParams(TypedDict):
    # The task's name in the other system, such as v1:ID. A second call with it returns the existing task.
    origin: str
    # A short title.
    title: str
    # The task's phase here.
    phase: Literal["spec_draft", "circuit_open", "completed"]
    # The absolute path of the working folder, or a name.
    workspace: str


class TaskImportParams(_TaskImportParams, total=False):
    # The specification as fields. They take precedence over the Markdown.
    spec: 'TaskFields'
    # The specification as Markdown.
    spec_markdown: str
    # Labels.
    labels: List[str]
    # 0 is the most urgent; 2 by default.
    priority: int
    # Ids of tasks that must be completed first.
    depends_on: List[str]
    # The task's artifacts. The daemon hashes files of the workspace.
    artifacts: List['TaskImported']
    # The task's tenant, if there are several.
    tenant_id: str
    # The level of the task's texts.
    classification: Literal["public", "internal", "confidential", "restricted"]
    # The task's state in the other system, for the record.
    status: str
    # The number of retries in the other system, for the record.
    retries: int
    # The last error in the other system, for the record.
    last_error: str


class _TaskImported(TypedDict):
    # The file's path in the workspace, or another address.
    uri: str


class TaskImported(_TaskImported, total=False):
    # sha256: and the SHA-256 in hexadecimal digits. Required unless uri is a file in the workspace.
    digest: str


class _TaskInput(TypedDict):
    uri: str
    digest: str


class TaskInput(_TaskInput, total=False):
    argv: List['TaskWord']


class _TaskKillEffectParams(TypedDict):
    # The task's id.
    task_id: str
    # The effect's id.
    effect_id: str
    # The reason, for the record.
    reason: str


class TaskKillEffectParams(_TaskKillEffectParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # The run's number; by default the run in progress.
    run: int


class _TaskLine(TypedDict):
    task_id: str
    title: str
    workspace: str
    phase: str
    revision: int
    seq: int
    circuit_status: str
    priority: int
    labels: List[str]
    depends_on: List[str]
    created_at: str
    updated_at: str
    created_by: str
    artifact_revision: int
    ready_at: Union[str, None]
    waits_for: str
    since: str


class TaskLine(_TaskLine, total=False):
    tenant_id: str
    classification: str
    not_before: str
    current_attempt_id: str
    fence: int
    counted: int
    claim: 'TaskClaim'
    circuit_reason: str
    origin: str
    person: bool
    questions: List['TaskQuestion']
    progress: 'TaskProgress'


class _TaskList(TypedDict):
    tasks: List['TaskLine']


class TaskList(_TaskList, total=False):
    next: str


class TaskListParams(TypedDict, total=False):
    # Tasks of this tenant.
    tenant_id: str
    # Tasks in this phase.
    phase: Literal["spec_draft", "spec_review", "execution_ready", "executing", "spec_gate", "quality_gate", "awaiting_approval", "ready_to_resume", "completed", "failed", "circuit_open"]
    # Leaves out completed and failed tasks without a question to people.
    open: bool
    # The most tasks in the answer.
    limit: int
    # The answer's next: continues a list.
    after: str
    # Begins with the newest task. after then continues to older ones.
    newest: bool


class TaskListReadyParams(TypedDict, total=False):
    # The most tasks in the answer.
    limit: int
    # Labels. Tasks with all of them are listed.
    labels: List[str]


class _TaskMissing(TypedDict):
    field: str
    problem: str


class TaskMissing(_TaskMissing, total=False):
    entry: int
    reason: str


class _TaskNamed(TypedDict):
    path: str


class TaskNamed(_TaskNamed, total=False):
    leads: str
    digest: str
    absent: bool


class TaskNews(TypedDict, total=False):
    seq: int
    task_id: str
    n: int
    event: str
    at: str
    actor: str
    role: str
    attempt_id: str
    was: Dict[str, Any]
    now: Dict[str, Any]
    reason: str
    phase: str
    revision: int
    caught: bool


class _TaskOpenCircuitParams(TypedDict):
    # The task's id.
    task_id: str
    # The caller's name.
    actor: str
    # The reason, for the record.
    reason: str


class TaskOpenCircuitParams(_TaskOpenCircuitParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # The caller's role.
    actor_role: str
    # The id of the last attempt.
    latest_attempt_id: str


class _TaskOption(TypedDict):
    to: str
    allowed: bool
    guards: List[str]


class TaskOption(_TaskOption, total=False):
    via: str


class _TaskPermission(TypedDict):
    decision: str


class TaskPermission(_TaskPermission, total=False):
    reason: str
    approval_id: str


class _TaskPlanEffectParams(TypedDict):
    # The task's id.
    task_id: str
    # A name of the effect within the task. A second request with it is the same effect.
    idempotency_key: str
    # The kind of effect, in a word: deployment, merge, notification, …
    side_effect_kind: str


class TaskPlanEffectParams(_TaskPlanEffectParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # The action, in a sentence that a person can decide about. Required to request an approval.
    requested_action: str
    # The program to run. The approval binds program, arguments, environment and inputs by their digests.
    command: 'TaskActionInput'
    # The parameters of an effect that is no command, for its executor.
    params: Dict[str, Any]
    # A command that undoes the effect. It is approved together with the effect.
    compensation: 'TaskActionInput'


class _TaskPlanned(TypedDict):
    # A name of the effect within the task. A second request with it is the same effect.
    idempotency_key: str
    # The kind of effect, in a word: deployment, merge, notification, …
    side_effect_kind: str


class TaskPlanned(_TaskPlanned, total=False):
    # The action, in a sentence that a person can decide about. Required to request an approval.
    requested_action: str
    # The program to run. The approval binds program, arguments, environment and inputs by their digests.
    command: 'TaskActionInput'
    # The parameters of an effect that is no command, for its executor.
    params: Dict[str, Any]
    # A command that undoes the effect. It is approved together with the effect.
    compensation: 'TaskActionInput'


class _TaskPrincipal(TypedDict):
    name: str


class TaskPrincipal(_TaskPrincipal, total=False):
    processes: List[str]
    issuers: List[str]


class TaskProgram(TypedDict):
    path: str
    sha256: str


class TaskProgress(TypedDict):
    attempt: int
    actor: str
    started_at: str
    checkpoints: int
    heard_at: str
    lease_expires_at: str


class _TaskQuestion(TypedDict):
    about: str
    text: str
    since: str


class TaskQuestion(_TaskQuestion, total=False):
    approval_id: str
    effect_id: str
    run: int
    details: List[str]


class _TaskRequestApprovalParams(TypedDict):
    # The task's id.
    task_id: str
    # A name of the effect within the task. A second request with it is the same effect.
    idempotency_key: str
    # The kind of effect, in a word: deployment, merge, notification, …
    side_effect_kind: str


class TaskRequestApprovalParams(_TaskRequestApprovalParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # The attempt's id.
    attempt_id: str
    # The action, in a sentence that a person can decide about. Required to request an approval.
    requested_action: str
    # The program to run. The approval binds program, arguments, environment and inputs by their digests.
    command: 'TaskActionInput'
    # The parameters of an effect that is no command, for its executor.
    params: Dict[str, Any]
    # A command that undoes the effect. It is approved together with the effect.
    compensation: 'TaskActionInput'
    # The caller's name.
    requested_by: str
    # Asks whether the effect of the key, which was run, may be undone: for an effect whose approval does not allow that any more.
    undo: bool
    # Ignored. The published protocol has it.
    status: str


class _TaskResolveApprovalParams(TypedDict):
    # The task's id.
    task_id: str
    # The approval's id.
    approval_id: str
    # The decision.
    resolution: Literal["approved", "rejected", "request_changes"]


class TaskResolveApprovalParams(_TaskResolveApprovalParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # The caller's name.
    resolved_by: str
    # The reason.
    note: str
    # The digest of the request that the person saw, from approval.get. Required to approve.
    digest: str
    # A person's armored SSH signature.
    signature: str


class _TaskReview(TypedDict):
    review_id: str
    review_type: str
    actor: str
    verdict: str
    findings: List['TaskFinding']
    subject: 'TaskSubject'
    at: str
    stale: bool


class TaskReview(_TaskReview, total=False):
    attempt_id: str
    summary: str
    claimed_by: str
    shared_principal: str
    void: bool


class _TaskReviewParams(TypedDict):
    # The task's id.
    task_id: str
    # The subject of the review. A reviewer gives reviews of its own type.
    review_type: Literal["spec", "quality"]
    # The caller's name.
    reviewer_ref: str
    # The verdict. approved passes.
    verdict: Literal["approved", "changes_requested", "blocked"]
    # The findings; an empty list if there are none.
    findings: List['TaskFindingInput']


class TaskReviewParams(_TaskReviewParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # The attempt's id.
    attempt_id: str
    # A sentence about it.
    summary: str
    # The reviewed revision; by default the last one that the caller read.
    subject_revision: int


class _TaskReviewed(TypedDict):
    task_id: str
    phase: str
    revision: int
    review_id: str
    stale: bool


class TaskReviewed(_TaskReviewed, total=False):
    audit_seq: int
    replayed: bool


class _TaskRevokeGrantParams(TypedDict):
    # The grant's id.
    grant_id: str


class TaskRevokeGrantParams(_TaskRevokeGrantParams, total=False):
    # The grant's task.
    task_id: str
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str


class _TaskRun(TypedDict):
    run: int
    state: str
    approval_id: str
    actor: str
    started_at: str


class TaskRun(_TaskRun, total=False):
    compensation: bool
    role: str
    ended_at: str
    begun: str
    withdrawn: bool
    pid: int
    receipt: Any
    token_hash: str
    kill_asked: bool
    not_begun: bool
    undo_until: str
    evidence: str
    settled_by: str


class _TaskRunEffectParams(TypedDict):
    # The task's id.
    task_id: str
    # The digest from the answer of task.request_approval.
    request_digest: str


class TaskRunEffectParams(_TaskRunEffectParams, total=False):
    # The effect's id.
    effect_id: str
    # The effect's key, in place of effect_id.
    idempotency_key: str
    # Undoes the effect, once, by the compensation that was approved with it.
    compensation: bool
    # Seconds to wait for the end; for a lobster also for the decision and the orchestrator's move.
    wait_s: int


class _TaskSettleEffectParams(TypedDict):
    # The task's id.
    task_id: str
    # The effect's id.
    effect_id: str
    # The outcome.
    outcome: Literal["done", "failed"]
    # The reason, for the record.
    note: str


class TaskSettleEffectParams(_TaskSettleEffectParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # The run's number; by default the run with an unknown outcome.
    run: int


class _TaskSpec(TypedDict):
    version: int
    author: str
    at: str


class TaskSpec(_TaskSpec, total=False):
    # The goal, in a sentence.
    goal: str
    # The parts of the task.
    scope_in: List[str]
    # The parts that do not belong to the task.
    scope_out: List[str]
    # The inputs of the task.
    inputs: List[str]
    # The results of the task.
    outputs: List[str]
    # The criteria of a completed task. Each can be checked.
    acceptance_criteria: List[str]
    # The risks.
    risks: List[str]
    markdown: str
    uri: str
    digest: str
    by: 'TaskPrincipal'


class _TaskSpecRef(TypedDict):
    # The file's path in the workspace.
    uri: str


class TaskSpecRef(_TaskSpecRef, total=False):
    # sha256: and the file's SHA-256 in hexadecimal digits.
    digest: str


class _TaskStartAttemptParams(TypedDict):
    # The task's id.
    task_id: str
    # The caller's name.
    actor: str
    # The phase of the attempt.
    phase: Literal["executing"]
    # The runtime of the attempt.
    runtime: Literal["local", "acp", "other"]
    # The kind of executor. One of kind research reads and reports: it records no work and plans no effect.
    executor_kind: Literal["builder", "research", "external_coder"]


class TaskStartAttemptParams(_TaskStartAttemptParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # The caller's role.
    actor_role: str
    # The name of the executor that makes the attempt; the caller if it is absent.
    worker_ref: str
    # The executor's session elsewhere.
    external_session_ref: str
    # The revision that the caller read. The call is refused if the task has changed since.
    expected_revision: int


class TaskSubject(TypedDict):
    spec_version: int
    artifact_revision: int
    gate: bool


class _TaskToolCall(TypedDict):
    # The kind of call, such as execute.
    kind: str


class TaskToolCall(_TaskToolCall, total=False):
    # The call's id in the runtime.
    id: str
    # The call in a sentence.
    title: str
    # Whether the call touches only files of the task's workspace.
    in_workspace: bool
    # The tool's MCP server.
    mcp_server: str
    # The tool's arguments.
    input: Any


class _TaskTransitionParams(TypedDict):
    # The task's id.
    task_id: str
    # The task's present phase.
    from_phase: Literal["spec_draft", "spec_review", "execution_ready", "executing", "spec_gate", "quality_gate", "awaiting_approval", "ready_to_resume", "completed", "failed", "circuit_open"]
    # The next phase.
    to_phase: Literal["spec_draft", "spec_review", "execution_ready", "executing", "spec_gate", "quality_gate", "awaiting_approval", "ready_to_resume", "completed", "failed", "circuit_open"]
    # The caller's name.
    actor: str
    # The reason, for the record.
    reason: str


class TaskTransitionParams(_TaskTransitionParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # The caller's role.
    actor_role: str
    # The attempt's id.
    attempt_id: str
    # The revision that the caller read. The call is refused if the task has changed since.
    expected_revision: int


class _TaskUpdateParams(TypedDict):
    # The task's id.
    task_id: str
    # The revision that the caller read. The call is refused if the task has changed since.
    expected_revision: int


class TaskUpdateParams(_TaskUpdateParams, total=False):
    # A name of the caller's own for this call. Give the same name when you repeat a call that got no answer: it then takes effect once.
    request_key: str
    # A short title.
    title: str
    # Labels.
    labels: List[str]
    # 0 is the most urgent; 2 by default.
    priority: int
    # Ids of tasks that must be completed first.
    depends_on: List[str]
    # The earliest start, RFC 3339.
    not_before: str
    # The specification as fields. They take precedence over the Markdown.
    spec: 'TaskFields'
    # The specification as Markdown, with the headings Goal, Scope, Non-goals, Inputs, Outputs, Acceptance criteria and Risks, or these names in Chinese, Dutch, French, German, Italian, Japanese, Portuguese or Spanish.
    spec_markdown: str


class _TaskUpdated(TypedDict):
    task_id: str
    phase: str
    revision: int
    missing: List['TaskMissing']


class TaskUpdated(_TaskUpdated, total=False):
    audit_seq: int
    replayed: bool


class _TaskView(TypedDict):
    task_id: str
    title: str
    workspace: str
    phase: str
    revision: int
    seq: int
    circuit_status: str
    priority: int
    labels: List[str]
    depends_on: List[str]
    created_at: str
    updated_at: str
    created_by: str
    artifact_revision: int
    spec: 'TaskSpec'
    spec_versions: int
    missing: List['TaskMissing']
    attempts: List['TaskAttempt']
    artifacts: List['TaskArtifact']
    reviews: List['TaskReview']
    effects: List['TaskEffect']
    approvals: List['TaskApproval']
    gates: 'TaskGates'
    allowed_transitions: List['TaskOption']
    retries_left: int
    reworks_left: int
    ready_at: Union[str, None]
    events: List['TaskEvent']


class TaskView(_TaskView, total=False):
    tenant_id: str
    classification: str
    not_before: str
    current_attempt_id: str
    fence: int
    counted: int
    claim: 'TaskClaim'
    circuit_reason: str
    origin: str
    escalate: bool
    lease_expires_at: str
    open_dependencies: List[str]
    more: List[str]
    failure_summary: List[str]
    last_good_artifacts: List['TaskArtifact']
    last_good_revision: int
    unblock: List[str]
    specs: List['TaskSpec']
    checkpoints: List['TaskCheckpoint']


class TaskWatchParams(TypedDict, total=False):
    # The task; all tasks if it is absent.
    task_id: str
    # A number of the log. The stream begins after it.
    after: int


class ToolUse(TypedDict, total=False):
    # The tool's name, a string.
    toolName: Any
    # The tool's arguments.
    params: Any
    # The tool's server, a string.
    mcpServer: Any
    # The working folder, a string.
    cwd: Any
    # A string that tells the server from others of its name.
    origin: Any
    # The proxy's map for the server, a string.
    map: Any
    # true if no map has the tool and the tool takes text.
    unmapped: Any
    # The client's answers about the call.
    inputResponses: Any
    # The arguments that the request's header repeats.
    headers: Any
    # The call's number in the runtime, a string.
    toolCallId: Any


class _Turn(TypedDict):
    round: int
    sender: str
    summary: str


class Turn(_Turn, total=False):
    claimed: bool


class _UngatedProcess(TypedDict):
    app: str
    title: str
    pid: int
    since: str


class UngatedProcess(_UngatedProcess, total=False):
    why: str


class UnregisterParams(TypedDict):
    # The id from capability.register.
    capabilityId: str


class UnsignedRecords(TypedDict):
    first: int
    last: int
    since: str
    until: str


class UnsubscribeResult(TypedDict):
    unsubscribed: List[str]


class Watching(TypedDict):
    watching: bool


class _WithdrawParams(TypedDict):
    # The approval request.
    approvalId: str


class WithdrawParams(_WithdrawParams, total=False):
    # A note for the record.
    note: str


class Withheld(TypedDict):
    reason: str
    description: str


class _WitnessStatus(TypedDict):
    name: str
    url: str
    signed: int


class WitnessStatus(_WitnessStatus, total=False):
    refused: bool
    error: str
    failingSince: str

AgentContactsParams = Dict[str, Any]

AgentMessage = TypedDict("AgentMessage", {
    "dispatch_id": "str",
    "from": "str",
    "from_user": "str",
    "session": "str",
    "reply_to": "str",
    "text": "str",
    "classification": "str",
    "message_type": "str",
    "exchange_id": "str",
    "exchange_type": "str",
    "round": "int",
    "max_rounds": "int",
    "reply_policy": "str",
    "expires_at": "str",
    "task_id": "str",
    "metadata": "Dict[str, Any]",
}, total=False)

AuditStatsPair = TypedDict("AuditStatsPair", {
    "from": "str",
    "to": "str",
    "kind": "str",
    "sent": "int",
    "held": "int",
    "refused": "int",
    "wall": "int",
}, total=False)

Empty = Dict[str, Any]

EmptyInput = Dict[str, Any]

ErrorCode = Literal["UNKNOWN_ERROR", "INVALID_REQUEST", "METHOD_NOT_FOUND", "INVALID_PARAMS", "INTERNAL_ERROR", "UNAUTHORIZED", "FORBIDDEN", "NOT_FOUND", "CONFLICT", "TIMEOUT", "APP_NOT_REGISTERED", "CAPABILITY_DENIED", "HOOK_NOT_SUBSCRIBED", "CONNECTION_CLOSED"]

FleetAttachParams = Dict[str, Any]

ResponseMessage = Dict[str, Any]

RunnerAttachParams = Dict[str, Any]

TaskWord = TypedDict("TaskWord", {
    "index": "int",
    "from": "int",
}, total=False)

VerdictCode = Literal["CROSS_ENTERPRISE_BLOCKED", "EXCHANGE_EXPIRED", "EXCHANGE_CLOSED", "CLASSIFICATION_VIOLATION", "POLICY_DENIED", "POLICY_ENGINE_UNREACHABLE", "POLICY_REQUIRES_APPROVAL", "EXCHANGE_ROUND_LIMIT", "EXCHANGE_CHAIN_LIMIT", "EXCHANGE_TYPE_UNSUPPORTED", "QUERIES_NOT_RECEIVED", "ANNOTATION_TOO_LARGE", "MALFORMED_ENVELOPE", "ENVELOPE_SOURCE_MISMATCH", "ENVELOPE_REPLAYED", "COMMITMENT_REQUIRES_HUMAN", "REPLY_NOT_EXPECTED", "INTERCEPTOR_BLOCKED", "INTERCEPTOR_TIMEOUT", "TOO_MANY_HELD", "AUDIT_WRITE_FAILED", "RECIPIENT_MISMATCH", "LOOKS_LIKE_KNOWN", "BUDGET_EXCEEDED", "FIRST_CONTACT", "ENVELOPE_FORGED", "PAUSED", "MEDIA_REFUSED", "TASK_REFUSED", "CHANGED_SINCE"]
