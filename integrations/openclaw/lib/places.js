// Where a message goes within a channel. A recipient's name is not always the whole of it: OpenClaw's channels read a
// thread, or the message that is answered, beside it.

/** Channels whose threads have ids of their own, to which the channel sends in place of the recipient. */
const THREADS = new Set(["discord"]);
/** Channels whose threads are a part of the recipient's place, and those whose messages are. */
const IN_PLACE = new Set(["telegram", "slack", "matrix", "mattermost", "msteams", "googlechat"]);
const ANSWERED = new Set([...THREADS, ...IN_PLACE, "whatsapp", "signal", "irc", "nextcloud-talk", "imessage", "bluebubbles"]);
/** Channels in which a message is found by its id alone, in whatever conversation it is. */
const BY_ID = new Set(["imessage", "bluebubbles"]);

const isSet = (value) => value !== undefined && value !== null && value !== "";

/**
 * The recipient to whom a channel sends.
 * @param {string} channel
 * @param {string} to
 * @param {string|number|undefined} thread
 */
export const placeOf = (channel, to, thread) => (isSet(thread) && THREADS.has(channel) && to.split(":").at(-1) !== String(thread).trim() ? `channel:${String(thread).trim()}` : to);

/** Refuses parameters of the tool message by which it could reach another place than its recipient's. */
export function within(p) {
  if (isSet(p.threadId) && !THREADS.has(p.channel) && !IN_PLACE.has(p.channel)) throw new Error(`threadId may lead to another place of ${p.channel}: leave it out`);
  for (const name of ["replyTo", "messageId"]) {
    if (isSet(p[name]) && (!ANSWERED.has(p.channel) || p.action === "edit" && BY_ID.has(p.channel))) {
      throw new Error(`${name} may lead to another place of ${p.channel}: leave it out`);
    }
  }
}
