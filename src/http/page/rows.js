// The schema of a stream as it is written in the editor: the rules of wire.md section 12, with the place of what is wrong.

const SCALARS = {
  boolean: [], integer: ["int32", "int64"], number: ["float", "double"],
  string: [],
};
const ANYWHERE = ["type", "title", "description"];
const RESERVED_COLUMNS = ["streamcast_ts", "litelink_offset"];

class SchemaTrouble extends Error {}

function trouble(path, why) {
  throw new SchemaTrouble(path ? `${path}: ${why}` : why);
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function checkKeywords(spec, allowed, path) {
  for (const key of Object.keys(spec)) {
    if (!ANYWHERE.includes(key) && !allowed.includes(key)) trouble(path, `“${key}” would have no effect; remove it`);
  }
}

/** The one type of a value, and whether it may be null. */
function typeOf(spec, path) {
  if (!isObject(spec)) trouble(path, "must be an object such as {\"type\":\"string\"}");
  const types = [spec.type ?? []].flat();
  const plain = types.filter((type) => type !== "null");
  if (plain.length !== 1 || typeof plain[0] !== "string") trouble(path, "needs exactly one type, and “null” if it may be missing");
  return { type: plain[0], nullable: types.includes("null") };
}

/** How a value is stored, as people call it. */
function checkValue(spec, path) {
  const { type, nullable } = typeOf(spec, path);
  const may = nullable ? "?" : "";
  if (type === "array") {
    checkKeywords(spec, ["items"], path);
    if (!isObject(spec.items)) trouble(path, "needs “items”");
    return `list of ${checkValue(spec.items, `${path}[]`)}${may}`;
  }
  if (type === "object") {
    checkKeywords(spec, ["properties", "required", "additionalProperties"], path);
    const fields = isObject(spec.properties) && Object.keys(spec.properties).length > 0;
    const values = isObject(spec.additionalProperties);
    if (fields === values) trouble(path, "needs either “properties” or a schema in “additionalProperties”");
    if (values) return `map of ${checkValue(spec.additionalProperties, `${path}{}`)}${may}`;
    return `struct {${checkProperties(spec, path).map(([name, kind]) => `${name}: ${kind}`).join(", ")}}${may}`;
  }
  if (!(type in SCALARS)) trouble(path, `there is no type “${type}”`);
  const allowed = { boolean: [], integer: ["format"], number: ["format"], string: ["format", "contentEncoding"] }[type];
  checkKeywords(spec, allowed, path);
  if (type === "string" && "contentEncoding" in spec) {
    if (!["base16", "base64"].includes(spec.contentEncoding)) trouble(path, "“contentEncoding” is base16 or base64");
    if (typeof spec.format === "string" && !/^bytes\d+$/.test(spec.format)) trouble(path, "the format of bytes is “bytesN”, such as bytes16");
    return `${spec.format ?? "bytes"}${may}`;
  }
  if (typeof spec.format === "string" && !SCALARS[type].includes(spec.format)) {
    trouble(path, SCALARS[type].length ? `the format is ${SCALARS[type].join(" or ")}` : "takes no format");
  }
  return `${spec.format ?? { integer: "int64", number: "double" }[type] ?? type}${may}`;
}

function checkProperties(spec, path) {
  const required = spec.required ?? [];
  if (!Array.isArray(required)) trouble(path, "“required” must be a list of names");
  for (const name of required) {
    if (!Object.hasOwn(spec.properties, name)) trouble(path, `“required” names ${JSON.stringify(name)}, which is no property`);
  }
  return Object.entries(spec.properties).map(([name, property]) => {
    const at = path ? `${path}.${name}` : name;
    const kind = checkValue(property, at);
    if (!required.includes(name) && !typeOf(property, at).nullable) trouble(at, "must be in “required”, or may be “null”");
    return [name, kind];
  });
}

/** The columns of a schema, [name, kind] each. Throws a SchemaTrouble. */
function columnsOf(schema) {
  if (!isObject(schema)) trouble("", "the schema must be an object");
  if (schema.type !== undefined && schema.type !== "object") trouble("", "the type of a row is “object”");
  checkKeywords(schema, ["properties", "required", "additionalProperties"], "");
  if (schema.additionalProperties !== undefined && schema.additionalProperties !== false) trouble("", "“additionalProperties” can only be false here");
  if (!isObject(schema.properties) || !Object.keys(schema.properties).length) trouble("", "“properties” must name at least one column");
  const columns = checkProperties(schema, "");
  const seen = new Map();
  for (const [name] of columns) {
    if (RESERVED_COLUMNS.includes(name.toLowerCase())) trouble(name, "the name is the log's own");
    if (name.includes('"')) trouble(name, "a name cannot hold a quotation mark");
    if (seen.has(name.toLowerCase())) trouble(name, `differs from “${seen.get(name.toLowerCase())}” only by case`);
    seen.set(name.toLowerCase(), name);
  }
  return columns;
}

/** Parses JSON; the error names line and column. */
function parseEditor(text) {
  try { return JSON.parse(text); } catch (error) {
    const at = /position (\d+)/.exec(error.message);
    if (!at) throw new SchemaTrouble(`not JSON: ${error.message}`);
    const before = text.slice(0, Number(at[1])).split("\n");
    throw new SchemaTrouble(`not JSON at line ${before.length}, column ${before.at(-1).length + 1}`);
  }
}
