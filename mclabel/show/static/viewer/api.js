// What the server knows.

/** The answer as an object. Throws an Error whose message is for the reader. */
export async function get(name, parameters = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== "" && value !== null && value !== undefined) query.set(key, value);
  }
  let response;
  try {
    response = await fetch(`/api/${name}?${query}`);
  } catch {
    throw new Error("The server does not answer. Start mclabel view again, and open its address.");
  }
  if (response.status === 403) {
    throw new Error("This address is of an earlier start. Open the one that mclabel view printed.");
  }
  if (!(response.headers.get("content-type") ?? "").includes("json")) {
    throw new Error("The server has failed at this. Its terminal says why.");
  }
  const content = await response.json();
  if (!response.ok) throw new Error(content.error);
  return content;
}
