// Export of JSON lines from the page, to a file or to the clipboard.

export const jsonLines = (rows) => rows.map((row) => `${JSON.stringify(row)}\n`).join("");

/** Download a text as a file. */
export function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/jsonl" }));
  link.download = `mclabel-${name.replace(/[^\w.-]+/g, "-")}.jsonl`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    throw new Error("The browser does not let the page write to the clipboard. Download the file instead.");
  }
}
