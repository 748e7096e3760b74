// OpenClaw takes a parameter of its own tools as sessionKey and as session_key. The gate reads the
// first form alone, so a call with the second one is refused.

/**
 * @param {any} params
 * @returns {string|undefined} the reason for a refusal
 */
export function misspelt(params) {
  const name = Object.keys(params ?? {}).find((name) => name !== "_ocip" && name.includes("_"));
  return name && `write ${name} as ${name.replace(/_+([a-z0-9])/gi, (_, c) => c.toUpperCase())}`;
}
