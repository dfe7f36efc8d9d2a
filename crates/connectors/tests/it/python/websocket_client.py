"""Sends texts and prints what arrives: websocket_client.py URL COUNT TEXT…

Prints `connected`, then COUNT messages as they arrive.
"""
import sys

from websockets.sync.client import connect

url, count, *texts = sys.argv[1:]
with connect(url) as connection:
    print("connected", flush=True)
    for text in texts:
        connection.send(text)
    for _ in range(int(count)):
        print(connection.recv(timeout=20), flush=True)
