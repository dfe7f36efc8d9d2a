#!/usr/bin/env python3
"""SMTP server for tests: stores what it receives below a directory, as one Maildir for each recipient.

    smtp_server.py PORT TLS_PORT CERTIFICATE KEY MAIL_DIR

PORT takes plain connections and STARTTLS, TLS_PORT takes TLS. The password of every user is `tidemill`. Recipients whose names
begin with `refused` get the answer 550, those with `busy` 451, those with `later` 451 for the first two attempts. A message with
`virus` in its subject gets 554, one above 1 MiB gets 552.
"""

import asyncio
import collections
import email
import mailbox
import os
import signal
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult

SIZE_MAX = 1 << 20


class Store:
    """Stores messages; answers recipients by their names."""

    def __init__(self, directory):
        self.directory = directory
        self.attempts = collections.Counter()

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("refused"):
            return f"550 5.1.1 <{address}>: there is no such mailbox"
        self.attempts[address] += 1
        if address.startswith("busy") or (address.startswith("later") and self.attempts[address] <= 2):
            return f"451 4.3.0 <{address}>: try again later"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server, session, envelope):
        message = email.message_from_bytes(envelope.content)
        if "virus" in str(message.get("Subject", "")):
            return "554 5.7.1 the message is not wanted"
        message["X-Sender"] = envelope.mail_from
        for address in envelope.rcpt_tos:
            name = address.split("@")[0]
            mailbox.Maildir(os.path.join(self.directory, name), create=True).add(message)
        return "250 2.0.0 stored"


def authenticate(server, session, envelope, mechanism, data):
    return AuthResult(success=data.password == b"tidemill", handled=False)


async def main():
    port, tls_port, certificate, key, directory = sys.argv[1:]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    store = Store(directory)

    def protocol(tls_context=None):
        return SMTP(
            store,
            data_size_limit=SIZE_MAX,
            hostname="localhost",
            tls_context=tls_context,
            authenticator=authenticate,
            auth_require_tls=False,
        )

    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    await loop.create_server(lambda: protocol(context), "127.0.0.1", int(port))
    await loop.create_server(protocol, "127.0.0.1", int(tls_port), ssl=context)
    await stopped.wait()


asyncio.run(main())
