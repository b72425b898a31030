// The columns of all points: read from what the page carries, decoded when first asked for.

/** One column. `words` and `values` columns have codes into a list of distinct values (`levels`). */
class Column {
  constructor(info, bytes, rows) {
    Object.assign(this, info);
    this.rows = rows;
    this.unit = unitOf(info.name);
    this.isNumber = info.kind !== "words" && info.kind !== "hex";
    this.bytes = bytes;
  }

  /** Byte planes back to one number a row: the lowest bytes of all rows come first. */
  plane(width, row) {
    let value = 0;
    for (let place = width - 1; place >= 0; place--) value = value * 256 + this.bytes[this.offset + place * this.rows + row];
    return value;
  }

  /** Code of each row's level; null where the column has no levels. */
  get codes() {
    if (this.kind === "numbers" || this.kind === "hex") return null;
    if (!this.held) {
      this.held = this.width > 1 ? new Uint32Array(this.rows) : new Uint8Array(this.rows);
      if (this.width > 0) for (let row = 0; row < this.rows; row++) this.held[row] = this.plane(this.width, row);
    }
    return this.held;
  }

  /** Texts of the levels, as records.csv has them; an empty one is a missing value. */
  get levels() {
    this.texts ??= this.kind === "words" ? this.words : this.values?.map((value) => (value === null ? "" : plain(value)));
    return this.texts ?? null;
  }

  /** How often each level occurs. */
  get counts() {
    if (!this.tally) {
      this.tally = new Uint32Array(this.levels.length);
      for (const code of this.codes) this.tally[code]++;
    }
    return this.tally;
  }

  /** True if rows differ. */
  get varies() {
    return this.levels ? this.levels.length > 1 : this.rows > 1;
  }

  /** All numbers, NaN where there is none. */
  get numbers() {
    if (this.decoded) return this.decoded;
    this.decoded = new Float64Array(this.rows).fill(NaN);
    if (this.kind === "values") {
      const values = this.values.map((value) => value ?? NaN);
      this.codes.forEach((code, row) => (this.decoded[row] = values[code]));
    } else if (this.kind === "numbers") {
      const bytes = new Uint8Array(this.decoded.buffer);
      for (let place = 0; place < 8; place++) {
        const from = this.offset + place * this.rows;
        for (let row = 0; row < this.rows; row++) bytes[row * 8 + place] = this.bytes[from + row];
      }
    }
    return this.decoded;
  }

  /** The value of a row, exactly as records.csv has it. */
  text(row) {
    if (this.levels) return this.levels[this.codes[row]];
    if (this.kind === "hex") return this.plane(this.width, row).toString(16).padStart(2 * this.width, "0");
    const value = this.numbers[row];
    return Number.isNaN(value) ? "" : plain(value);
  }

  /** The value of a row for people. */
  shown(row) {
    return this.isNumber ? pretty(this.numbers[row], this.unit) : this.text(row);
  }
}

/** A column that the page computes; `numbers` may be replaced. */
class Computed extends Column {
  constructor(info, rows, numbers) {
    super({ ...info, kind: "numbers" }, null, rows);
    this.decoded = numbers;
  }
}

/** Everything that the page carries. */
class Data {
  constructor(meta, bytes) {
    Object.assign(this, meta);
    this.columns = meta.columns.map((info) => new Column(info, bytes, meta.rows));
    this.byName = new Map(this.columns.map((column) => [column.name, column]));
    /** What tells points apart and varies, in the order of the file. */
    this.axes = this.columns.filter((column) => column.group === "axis" && column.levels && column.varies);
    this.status = this.byName.get("status");
    this.time = this.byName.get("median_ns");
    const ok = this.status.levels.indexOf("ok");
    /** 1 for rows with a time that counts. */
    this.isOk = new Uint8Array(this.rows);
    const times = this.time.numbers;
    for (let row = 0; row < this.rows; row++) this.isOk[row] = this.status.codes[row] === ok && times[row] > 0 ? 1 : 0;
  }

  column(name) {
    return this.byName.get(name);
  }

  add(column) {
    this.columns.push(column);
    this.byName.set(column.name, column);
  }

  /** `K=8 C=6 …` of the axes that vary, but for some. */
  place(row, without = []) {
    return this.axes
      .filter((axis) => !without.includes(axis.name) && axis.text(row) !== "")
      .map((axis) => (axis.isNumber ? `${axis.name}=${axis.text(row)}` : axis.text(row)))
      .join(" ");
  }

  /** Rows with equal values in some columns get equal numbers from 0; also how many there are. */
  groups(columns) {
    let ids = new Uint32Array(this.rows);
    let count = 1;
    for (const { codes, levels } of columns) {
      const next = new Uint32Array(this.rows);
      const seen = new Map();
      for (let row = 0; row < this.rows; row++) {
        const key = ids[row] * levels.length + codes[row];
        let id = seen.get(key);
        if (id === undefined) seen.set(key, (id = seen.size));
        next[row] = id;
      }
      ids = next;
      count = seen.size;
    }
    return { ids, count };
  }
}

/** Reads what the page carries: base64 of a deflate stream beside JSON that describes it. */
async function readData() {
  const meta = JSON.parse(byId("meta").textContent);
  const coded = atob(byId("numbers").textContent.trim());
  const packed = new Uint8Array(coded.length);
  for (let place = 0; place < coded.length; place++) packed[place] = coded.charCodeAt(place);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  byId("numbers").remove();
  return new Data(meta, bytes);
}
