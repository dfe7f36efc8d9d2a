"""Serves EventService: grpc_server.py SERVICE. Prints its port, and then each event that it takes as JSON.

An event with `refuse` in its payload is refused for good, one with `later` is taken when it comes for the second time.
"""
import json
import sys
from concurrent import futures

import grpc
from events import Event
from google.protobuf import empty_pb2

seen = set()


def take(event, context):
    if "refuse" in event.payload:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such thing")
    if "later" in event.payload and event.payload not in seen:
        seen.add(event.payload)
        context.abort(grpc.StatusCode.UNAVAILABLE, "come back")
    metadata = {name: value for name, value in context.invocation_metadata() if name.startswith("x-")}
    print(json.dumps([event.payload, dict(event.headers), metadata]), flush=True)


def consume(event, context):
    take(event, context)
    return empty_pb2.Empty()


def process(event, context):
    take(event, context)
    context.set_trailing_metadata((("x-trailer", "t"),))
    payload = json.loads(event.payload)
    payload["event"]["text"] = payload["event"]["text"].upper()
    return Event(payload=json.dumps(payload), headers={"kind": "answer"})


def handler(behaviour, serializer):
    return grpc.unary_unary_rpc_method_handler(
        behaviour, request_deserializer=Event.FromString, response_serializer=serializer.SerializeToString
    )


server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
methods = {"consume": handler(consume, empty_pb2.Empty), "process": handler(process, Event)}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(sys.argv[1], methods),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination()
