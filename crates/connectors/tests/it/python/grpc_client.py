"""Calls a method: grpc_client.py ADDRESS /SERVICE/METHOD PAYLOAD [header:NAME=VALUE] [metadata:NAME=VALUE] [raw]…

With `raw`, the request is a stream of the parts of PAYLOAD between commas, as they are.
Prints the answer or the status as JSON.
"""
import json
import sys

import grpc
from events import Event

address, method, payload, *rest = sys.argv[1:]
headers = dict(text[7:].split("=", 1) for text in rest if text.startswith("header:"))
metadata = [tuple(text[9:].split("=", 1)) for text in rest if text.startswith("metadata:")]
with grpc.insecure_channel(address) as channel:
    try:
        if "raw" in rest:
            call = channel.stream_unary(method, request_serializer=str.encode, response_deserializer=bytes)
            answer = call(iter(payload.split(",")), timeout=20, metadata=metadata)
            print(json.dumps({"bytes": list(answer)}))
        else:
            call = channel.unary_unary(
                method, request_serializer=Event.SerializeToString, response_deserializer=Event.FromString
            )
            answer = call(Event(payload=payload, headers=headers), timeout=20, metadata=metadata)
            print(json.dumps({"payload": answer.payload, "headers": dict(answer.headers)}))
    except grpc.RpcError as e:
        print(json.dumps({"code": e.code().name, "details": e.details()}))
