// Prepares a realm: clock, randomness and time zone come from the host, what depends on the machine is removed, and
// everything shared between calls is frozen, so that a call leaves nothing behind that a later call could see.
// Evaluates to a function that binds the script and returns what the host calls.
(function () {
  'use strict';
  const global = globalThis;
  for (const name of [
    'eval', 'Promise', 'queueMicrotask', 'performance', 'WeakRef', 'FinalizationRegistry', 'Atomics',
    'SharedArrayBuffer', 'AsyncDisposableStack',
  ]) {
    delete global[name];
  }

  let now = 0;
  let random = null;
  Math.random = function random_() {
    if (random === null) {
      throw new Error('Math.random() is not available here: write `Math.random()` in the text of the function');
    }
    return random();
  };

  // sfc32, seeded with 64 bits by the host
  function generator(a, b) {
    let c = 0, d = 1;
    const next = function () {
      const t = (((a + b) | 0) + d) | 0;
      d = (d + 1) | 0;
      a = b ^ (b >>> 9);
      b = (c + (c << 3)) | 0;
      c = (((c << 21) | (c >>> 11)) + t) | 0;
      return t >>> 0;
    };
    for (let i = 0; i < 12; i++) next();
    return () => ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
  }

  // The time zone is UTC on every machine.
  const Native = Date;
  const proto = Native.prototype;
  const hasZone = /\dZ|\b(?:UTC|GMT|Z|[ECMP][SD]T)\b|:\d\d(?:[.,]\d+)?\s*[+-]\d\d/i;
  const isoDate = /^\s*[+-]?\d{4,6}(?:-\d\d){0,2}\s*$/;
  const isoTime = /^\s*[+-]?\d{4,6}-\d\d-\d\dT[\d:.,]+\s*$/i;
  const parse = function (text) {
    const s = String(text);
    if (hasZone.test(s) || isoDate.test(s)) return Native.parse(s);
    return Native.parse(isoTime.test(s) ? s.trim() + 'Z' : s + ' UTC');
  };
  const shown = (date) => {
    const [day, number, month, year, time] = proto.toUTCString.call(date).replace(',', '').split(' ');
    return { date: `${day} ${month} ${number} ${year}`, time: `${time} GMT+0000 (UTC)` };
  };
  const text = (date, form) => (isNaN(proto.getTime.call(date)) ? 'Invalid Date' : form(shown(date)));
  const UtcDate = function Date(...args) {
    if (new.target === undefined) return new UtcDate().toString();
    let value;
    if (args.length === 0) value = now;
    else if (args.length > 1) value = Native.UTC(...args);
    else if (args[0] instanceof Native) value = proto.getTime.call(args[0]);
    else if (typeof args[0] === 'string') value = parse(args[0]);
    else value = args[0];
    return Reflect.construct(Native, [value], new.target);
  };
  UtcDate.prototype = proto;
  UtcDate.UTC = Native.UTC;
  UtcDate.parse = parse;
  UtcDate.now = () => now;
  proto.constructor = UtcDate;
  for (const part of ['FullYear', 'Month', 'Date', 'Day', 'Hours', 'Minutes', 'Seconds', 'Milliseconds']) {
    proto['get' + part] = proto['getUTC' + part];
    if (part !== 'Day') proto['set' + part] = proto['setUTC' + part];
  }
  proto.getYear = function () { return proto.getUTCFullYear.call(this) - 1900; };
  proto.setYear = function (year) {
    return proto.setUTCFullYear.call(this, year >= 0 && year <= 99 ? 1900 + Math.trunc(year) : year);
  };
  proto.getTimezoneOffset = function () { return isNaN(proto.getTime.call(this)) ? NaN : 0; };
  proto.toString = proto.toLocaleString = function () { return text(this, (s) => `${s.date} ${s.time}`); };
  proto.toDateString = proto.toLocaleDateString = function () { return text(this, (s) => s.date); };
  proto.toTimeString = proto.toLocaleTimeString = function () { return text(this, (s) => s.time); };
  global.Date = UtcDate;

  // A frozen property of a prototype cannot be set on the objects that inherit it. These names are often set, so
  // they become accessors that define the property on the object.
  const settable = ['constructor', 'message', 'name', 'toJSON', 'toString', 'valueOf'];
  const allowOverride = (object, name) => {
    const found = Reflect.getOwnPropertyDescriptor(object, name);
    if (found === undefined || !('value' in found) || !found.configurable) return;
    Reflect.defineProperty(object, name, {
      configurable: false,
      enumerable: found.enumerable,
      get: () => found.value,
      set(value) {
        if (this === object) return;
        Reflect.defineProperty(this, name, { value, writable: true, enumerable: true, configurable: true });
      },
    });
  };
  const isObject = (x) => (typeof x === 'object' && x !== null) || typeof x === 'function';
  const frozen = new Set([global]);
  const freeze = (start) => {
    const pending = [start];
    while (pending.length > 0) {
      const object = pending.pop();
      if (!isObject(object) || frozen.has(object)) continue;
      frozen.add(object);
      for (const key of Reflect.ownKeys(object)) {
        const property = Reflect.getOwnPropertyDescriptor(object, key);
        pending.push(property.value, property.get, property.set);
      }
      pending.push(Reflect.getPrototypeOf(object));
      if (typeof object === 'object' && Object.hasOwn(object, 'constructor')) {
        settable.forEach((name) => allowOverride(object, name));
      }
      Object.freeze(object);
    }
  };
  // what has no name of its own, by an example of each
  const async_ = async function () {};
  const examples = [
    function* () {}, async_, async function* () {}, [][Symbol.iterator](), new Map().entries(), new Set().entries(),
    ''[Symbol.iterator](), 'x'.matchAll(/x/g), (function* () {})(), (async function* () {})(), [].values().map((x) => x),
    Iterator.from({ next() {} }), Object.getPrototypeOf(Int8Array),
  ];
  const globals = Reflect.ownKeys(global);
  examples.forEach(freeze);
  for (const name of globals) {
    freeze(global[name]);
    Reflect.defineProperty(global, name, { writable: false, configurable: false });
  }
  freeze(Reflect.getPrototypeOf(global));

  const known = new Set(globals);
  const isClean = () => {
    const names = Reflect.ownKeys(global);
    if (names.length <= known.size) return true;
    return names.every((name) => known.has(name) || Reflect.deleteProperty(global, name));
  };

  return function (body, key, begin) {
    if (isObject(body.prototype)) Object.freeze(body.prototype);
    Object.freeze(body);
    known.add(key);
    const call = function (data, time, a, b) {
      begin();
      now = time;
      random = a === undefined ? null : generator(a, b);
      return body(data);
    };
    Reflect.defineProperty(global, key, { value: Object.freeze([call, isClean]) });
    Object.freeze(call);
    Object.freeze(isClean);
  };
})()
