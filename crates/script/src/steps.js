// Counts the work of built-in functions as steps: the interpreter itself counts turns of loops and calls only, and a
// built-in function may work for hours on a large length. An element of an array is a step, and so are 16 characters of a
// text. Evaluates to a function of the host's counter, which returns what begins a call.
(function (count) {
  'use strict';
  const global = globalThis;
  const { apply, defineProperty, getOwnPropertyDescriptor, ownKeys } = Reflect;
  const { isArray } = Array;
  const { log2, max, min, trunc } = Math;
  const { hasOwn } = Object;
  const stringify = JSON.stringify;
  const LARGE = 10000;
  const TypedArray = Object.getPrototypeOf(Int8Array);
  const getter = (object, name) => getOwnPropertyDescriptor(object, name).get;
  const typedLength = getter(TypedArray.prototype, 'length');
  const isView = ArrayBuffer.isView;
  const bufferBytes = getter(ArrayBuffer.prototype, 'byteLength');
  const sizes = new Map([[Map, getter(Map.prototype, 'size')], [Set, getter(Set.prototype, 'size')]]);
  const sizeOfSet = sizes.get(Set);

  // a proxy may answer another length each time that it is asked
  delete global.Proxy;

  let pending = 0;
  const spend = (steps) => {
    pending += steps;
    if (pending < LARGE) return;
    const all = pending;
    pending = 0;
    // the interpreter stops an endless loop when no steps are left, which no script can catch
    if (count(all)) for (;;);
  };

  // Replaces a function by one that `run` calls with the original, `this` and the arguments.
  const wrap = (object, name, run) => {
    const found = getOwnPropertyDescriptor(object, name);
    if (found === undefined || typeof found.value !== 'function') return;
    const native = found.value;
    const wrapper = { [name](...args) { return run(native, this, args); } }[name];
    defineProperty(wrapper, 'name', { value: native.name, configurable: true });
    defineProperty(wrapper, 'length', { value: native.length, configurable: true });
    defineProperty(object, name, { ...found, value: wrapper });
    for (const alias of ownKeys(object)) {
      const other = getOwnPropertyDescriptor(object, alias);
      if (other.value === native) defineProperty(object, alias, { ...other, value: wrapper });
    }
  };
  const before = (object, names, cost) => {
    for (const name of names) {
      wrap(object, name, (native, self, args) => {
        spend(cost(self, args));
        return apply(native, self, args);
      });
    }
  };
  const after = (object, names, cost) => {
    for (const name of names) {
      wrap(object, name, (native, self, args) => {
        const result = apply(native, self, args);
        spend(cost(result, self, args));
        return result;
      });
    }
  };

  const isObject = (x) => (typeof x === 'object' && x !== null) || typeof x === 'function';
  const toLength = (n) => (n > 0 ? min(trunc(n), Number.MAX_SAFE_INTEGER) : 0);
  const typed = (x) => {
    try { return apply(typedLength, x, []); } catch { return undefined; }
  };
  // The length that a built-in function will see, which no code may change between this and that.
  const lengthOf = (x) => {
    if (typeof x === 'string' || isArray(x)) return x.length;
    if (!isObject(x)) return 0;
    if (isView(x)) {
      const length = typed(x);
      if (length !== undefined) return length;
    }
    const own = getOwnPropertyDescriptor(x, 'length');
    if (own !== undefined && 'value' in own && !isObject(own.value)) return toLength(Number(own.value));
    if (own === undefined && !('length' in x)) return 0;
    throw new TypeError('the built-in functions of arrays need a length that is a property with a number');
  };

  const ofArray = (names, cost) =>
    before(Array.prototype, names, (self, args) => cost(lengthOf(self), args));
  ofArray([
    'fill', 'join', 'toLocaleString', 'reverse', 'toReversed', 'toSpliced', 'copyWithin', 'shift', 'unshift', 'with',
    'every', 'some', 'forEach', 'map', 'filter', 'reduce', 'reduceRight', 'find', 'findIndex', 'findLast',
    'findLastIndex', 'indexOf', 'lastIndexOf', 'includes',
  ], (n) => n);
  ofArray(['sort', 'toSorted'], (n) => n * log2(n + 2));
  const position = (x, n, missing) =>
    x === undefined ? missing : typeof x === 'number' && x === x ? (x < 0 ? max(n + x, 0) : min(x, n)) : missing;
  ofArray(['slice'], (n, args) => max(position(args[1], n, n) - position(args[0], n, 0), 0));
  ofArray(['splice'], (n, args) => n - position(args[0], n, 0));
  ofArray(['concat'], (n, args) => {
    let all = n;
    for (let i = 0; i < args.length; i++) {
      const arg = args[i];
      all += isArray(arg) || (isObject(arg) && Symbol.isConcatSpreadable in arg) ? lengthOf(arg) : 1;
    }
    return all;
  });
  // a loop over a small array costs its turns anyway
  ofArray(['values', 'keys', 'entries'], (n) => (n > LARGE ? n : 0));
  const flatten = (into, array, depth) => {
    const n = lengthOf(array);
    for (let i = 0; i < n; i++) {
      if (!(i in array)) continue;
      const x = array[i];
      if (depth > 0 && isArray(x)) flatten(into, x, depth - 1);
      else into[into.length] = x;
    }
    return into;
  };
  wrap(Array.prototype, 'flat', (native, self, args) => {
    if (!isObject(self)) return apply(native, self, args);
    const depth = args[0] === undefined ? 1 : +args[0];
    return flatten([], self, depth > 0 ? depth : 0);
  });
  wrap(Array.prototype, 'flatMap', (native, self, args) => {
    const [f, that] = args;
    if (!isObject(self) || typeof f !== 'function') return apply(native, self, args);
    const n = lengthOf(self);
    const mapped = [];
    for (let i = 0; i < n; i++) {
      if (!(i in self)) continue;
      const x = apply(f, that, [self[i], i, self]);
      if (isArray(x)) flatten(mapped, x, 0);
      else mapped[mapped.length] = x;
    }
    return mapped;
  });
  const ofSource = (self, [source]) =>
    source === null || source === undefined || typeof source === 'string' || typeof source[Symbol.iterator] === 'function'
      ? 0
      : lengthOf(source);
  before(Array, ['from'], ofSource);
  before(TypedArray, ['from'], ofSource);

  const ofTyped = (names, cost) =>
    before(TypedArray.prototype, names, (self, args) => cost(isObject(self) ? typed(self) || 0 : 0, args));
  ofTyped([
    'fill', 'reverse', 'toReversed', 'slice', 'copyWithin', 'with', 'indexOf', 'lastIndexOf', 'includes', 'every', 'some', 'forEach',
    'map', 'filter', 'reduce', 'reduceRight', 'find', 'findIndex', 'findLast', 'findLastIndex',
  ], (n) => n / 8);
  ofTyped(['join', 'toLocaleString'], (n) => n * 4);
  ofTyped(['sort', 'toSorted'], (n) => n * log2(n + 2) / 2);
  ofTyped(['values', 'keys', 'entries'], (n) => (n > LARGE ? n : 0));
  before(TypedArray.prototype, ['set'], (self, [source]) => lengthOf(source));
  const bytes = (self) => {
    try { return apply(bufferBytes, self, []) / 64; } catch { return 0; }
  };
  before(ArrayBuffer.prototype, ['resize', 'slice', 'sliceToImmutable', 'transfer', 'transferToImmutable', 'transferToFixedLength'], bytes);
  after(ArrayBuffer.prototype, ['resize', 'transfer', 'transferToImmutable', 'transferToFixedLength'],
    (result, self) => (result === undefined ? bytes(self) : bytes(result)));

  // A text that is an object gives its characters once: it may answer with other ones the next time.
  const toText = (x) => (isObject(x) ? String(x) : x);
  const ofText = (names, cost) => {
    for (const name of names) {
      wrap(String.prototype, name, (native, self, args) => {
        const text = toText(self);
        if (typeof text === 'string') spend(text.length / 16 + cost(text.length, args));
        return apply(native, text, args);
      });
    }
  };
  const isPattern = (x) => isObject(x) && x[Symbol.match] !== undefined;
  // the text that is looked for is compared at each position
  const ofSearch = (names, more) => {
    for (const name of names) {
      wrap(String.prototype, name, (native, self, args) => {
        if (isPattern(args[0]) || (isObject(args[0]) && (Symbol.split in args[0] || Symbol.replace in args[0]))) {
          if (typeof self === 'string') spend(self.length / 16);
          return apply(native, self, args);
        }
        const text = toText(self);
        if (args.length > 0) args[0] = toText(args[0]);
        if (typeof text === 'string') {
          const wanted = typeof args[0] === 'string' ? args[0].length : 20;
          spend(max(text.length - wanted + 1, 1) * min(wanted, text.length) / 8 + text.length * more);
        }
        return apply(native, text, args);
      });
    }
  };
  ofSearch(['indexOf', 'lastIndexOf', 'includes', 'startsWith', 'endsWith'], 0);
  ofSearch(['split', 'replace', 'replaceAll'], 1);
  ofText([
    'isWellFormed', 'toWellFormed', 'match', 'matchAll', 'search', 'trim', 'trimEnd', 'trimStart', 'localeCompare',
    'anchor', 'big', 'blink', 'bold', 'fixed',
    'fontcolor', 'fontsize', 'italics', 'link', 'small', 'strike', 'sub', 'sup',
  ], () => 0);
  ofText(['normalize', 'toLowerCase', 'toUpperCase', 'toLocaleLowerCase', 'toLocaleUpperCase'], (n) => n);
  ofText([Symbol.iterator], (n) => (n > LARGE ? 4 * n : 0));
  ofText(['repeat'], (n, args) => (typeof args[0] === 'number' && args[0] > 0 ? n * args[0] / 16 : 0));
  ofText(['padStart', 'padEnd'], (n, args) => (typeof args[0] === 'number' && args[0] > 0 ? args[0] / 16 : 0));
  const ofResult = (result) => (typeof result === 'string' ? result.length / 16 : 0);
  after(String.prototype, ['concat', 'slice', 'substring', 'substr', 'repeat', 'padStart', 'padEnd', 'replace', 'replaceAll'], ofResult);
  wrap(String, 'raw', (native, self, args) => {
    const raw = isObject(args[0]) ? args[0].raw : undefined;
    if (raw === undefined) return apply(native, self, args);
    spend(lengthOf(raw));
    args[0] = { raw };
    return apply(native, self, args);
  });
  const firstText = (self, [x]) => (typeof x === 'string' ? x.length / 4 : 0);
  before(global, ['decodeURI', 'decodeURIComponent', 'encodeURI', 'encodeURIComponent', 'escape', 'unescape', 'parseInt', 'parseFloat'], firstText);
  before(RegExp, ['escape'], firstText);
  for (const name of ['exec', 'test', Symbol.replace, Symbol.match, Symbol.matchAll, Symbol.search, Symbol.split]) {
    wrap(RegExp.prototype, name, (native, self, args) => {
      if (args.length > 0) args[0] = toText(args[0]);
      if (typeof args[0] === 'string') spend(args[0].length / 16);
      return apply(native, self, args);
    });
  }

  // the digits of large numbers cost the square of their number
  const ofDigits = (n) => n * n / 65536;
  after(BigInt.prototype, ['toString', 'toLocaleString'], (result) => ofDigits(result.length));
  const NativeBigInt = BigInt;
  wrap(global, 'BigInt', (native, self, args) => {
    if (typeof args[0] === 'string') spend(ofDigits(args[0].length));
    return apply(native, self, args);
  });
  for (const name of ownKeys(NativeBigInt)) {
    if (!hasOwn(BigInt, name)) defineProperty(BigInt, name, getOwnPropertyDescriptor(NativeBigInt, name));
  }
  BigInt.prototype.constructor = BigInt;

  // a property costs several steps
  const properties = (x) => 8 * (isObject(x) ? (isArray(x) || isView(x) ? lengthOfOwn(x) : ownKeys(x).length) : lengthOf(x));
  const lengthOfOwn = (x) => (isArray(x) ? min(x.length, 1e6) : typed(x) || 0);
  after(Object, ['keys', 'values', 'entries', 'getOwnPropertyNames', 'getOwnPropertySymbols'], (result) => 4 * result.length);
  after(Reflect, ['ownKeys'], (result) => 4 * result.length);
  before(Object, ['getOwnPropertyDescriptors', 'seal', 'freeze', 'isSealed', 'isFrozen', 'preventExtensions'], (self, [x]) => properties(x));
  before(Object, ['defineProperties', 'create'], (self, [, x]) => (x === undefined ? 0 : properties(x)));
  before(Object, ['assign'], (self, args) => {
    let all = 0;
    for (let i = 1; i < args.length; i++) all += properties(args[i]);
    return all;
  });
  const sizeOf = (x) => {
    try { return apply(sizeOfSet, x, []); } catch { return 0; }
  };
  before(Set.prototype, [
    'union', 'intersection', 'difference', 'symmetricDifference', 'isSubsetOf', 'isSupersetOf', 'isDisjointFrom',
  ], (self, [other]) => 4 * (sizeOf(self) + sizeOf(other)));
  for (const [Kind, size] of sizes) {
    before(Kind.prototype, ['clear', 'values', 'keys', 'entries'], (self) => {
      let n = 0;
      try { n = apply(size, self, []); } catch { /* the function itself says what it needs */ }
      return n > LARGE ? n : 0;
    });
  }

  // a function sees each value that is written, wherever it is nested and however often
  const listed = (list) => {
    const names = new Set();
    for (let i = 0; i < lengthOf(list); i++) {
      const name = list[i];
      const kind = typeof name;
      if (kind === 'string' || kind === 'number' || name instanceof String || name instanceof Number) names.add(String(name));
    }
    return (value) => {
      if (!isObject(value) || isArray(value)) return value;
      const picked = {};
      for (const name of names) {
        const x = value[name];
        if (x !== undefined) defineProperty(picked, name, { value: x, enumerable: true, configurable: true, writable: true });
      }
      return picked;
    };
  };
  wrap(JSON, 'stringify', (native, self, args) => {
    const replacer = args[1];
    const pick = isArray(replacer) ? listed(replacer) : undefined;
    const counted = function (key, value) {
      spend(typeof value === 'string' ? 8 + value.length / 8 : 8);
      if (typeof replacer === 'function') return apply(replacer, this, [key, value]);
      return pick === undefined || !isObject(value) || isBoxed(value) ? value : pick(value);
    };
    return stringify(args[0], counted, args[2]);
  });
  const isBoxed = (x) =>
    x instanceof String || x instanceof Number || x instanceof Boolean || x instanceof BigInt || typeof x === 'function';
  wrap(JSON, 'parse', (native, self, args) => {
    args[0] = toText(args[0]);
    if (typeof args[0] === 'string') spend(args[0].length);
    return apply(native, self, args);
  });

  return () => { pending = 0; };
})
