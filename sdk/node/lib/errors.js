export class NotRunning extends Error {
  name = "NotRunning";
}

export class NotSent extends Error {
  name = "NotSent";
}

export class Refused extends Error {
  name = "Refused";

  constructor(code, message, details, prefix = "") {
    super(`${prefix}${code}: ${message}`);
    this.code = code;
    this.reason = message;
    this.details = details;
    this.verdict = details?.ocip;
  }
}

export const closed = (message) => new Refused("CONNECTION_CLOSED", message);

// has reports whether an error is a refusal with one of some codes.
export const has = (error, ...codes) => error instanceof Refused && codes.includes(error.code);
