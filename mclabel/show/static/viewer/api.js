// Requests to the server.

/** Request `/api/name` and return the parsed JSON. Throws an Error with a message for the user. */
export async function get(name, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return content(() => fetch(`/api/${name}?${new URLSearchParams(given)}`));
}

/**
 * Return the parsed JSON of a response. Throws an Error that has the HTTP `status` of the response.
 * The error has no `status` if the server did not respond.
 */
export async function content(request) {
  let response;
  try {
    response = await request();
  } catch {
    throw new Error("The server does not respond. Start its command again, and open the address that the command prints.");
  }
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  const found = isJson ? await response.json() : {};
  if (response.ok && isJson) return found;
  const why = found.error ?? (response.status === 403
    ? "This address is from an earlier start of the command. Open the address that the command printed last."
    : "The server could not process this request. The terminal of the server shows the error.");
  throw Object.assign(new Error(why), { status: response.status });
}
