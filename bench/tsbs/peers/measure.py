"""What is measured of every peer, in the same way."""
import importlib
import statistics
import time

import feed
import results


def figures(module, data, scratch, plan):
    """Yields the load, the statements and the version as dictionaries."""
    peer = importlib.import_module(module).Peer(scratch)
    try:
        peer.start()
        if hasattr(peer, "open"):
            peer.open(data)
        else:
            yield {"load": load(peer, data)}
        yield from statements(peer, plan)
        yield {"version": peer.version()}
    finally:
        peer.stop()


def load(peer, data):
    """Sends all batches one after the other, each committed as the peer does by default."""
    peer.create()
    peer.insert("tags", peer.encode("tags", feed.tags(data)))
    batches = [(table, rows.num_rows, peer.encode(table, rows)) for table, rows in feed.batches(data)]
    times, begin = [], time.perf_counter()
    for table, _, batch in batches:
        start = time.perf_counter()
        peer.insert(table, batch)
        times.append((time.perf_counter() - start) * 1e3)
    seconds = time.perf_counter() - begin
    rows = sum(rows for _, rows, _ in batches)
    del batches
    start = time.perf_counter()
    peer.settle()
    settled = time.perf_counter() - start
    found = peer.count("readings") + peer.count("diagnostics")
    if found != rows:
        raise SystemExit(f"expected {rows} rows, found {found}")
    times.sort()
    return {
        "rows": rows,
        "rows_per_second": rows / seconds,
        "batch_ms_p50": times[len(times) // 2],
        "batch_ms_p99": times[int((len(times) - 1) * 0.99)],
        "settle_seconds": settled,
        "bytes_per_row": peer.bytes() / rows,
    }


def statements(peer, plan):
    """Asks all statements in turn, the first round to warm up."""
    asked = plan["statements"]
    times = {statement["name"]: [] for statement in asked}
    outcome, failed = {}, {}
    for turn in range(plan["runs"] + 1):
        for statement in asked:
            name = statement["name"]
            if name in failed:
                continue
            try:
                start = time.perf_counter()
                rows = peer.query(statement["text"])
                elapsed = (time.perf_counter() - start) * 1e3
            except Exception as error:  # each peer has exceptions of its own
                failed[name] = str(error)[:500]
                continue
            if turn:
                times[name].append(elapsed)
            lines = results.lines(rows, statement.get("key"))
            found = {"rows": len(lines), "sha256_16": results.digest(lines)}
            if outcome.setdefault(name, found) != found:
                failed[name] = f"{found}, before {outcome[name]}"
    for statement in asked:
        name = statement["name"]
        if name in failed:
            yield {"statement": name, "error": failed[name]}
            continue
        ms = times[name]
        spread = {"median": statistics.median(ms), "min": min(ms), "max": max(ms)}
        yield {"statement": name, "ms": spread, "outcome": outcome[name]}
