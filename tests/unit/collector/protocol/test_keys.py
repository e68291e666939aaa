"""The answers to ZeroMQ about the keys of connections."""

import zmq
from zmq.utils import z85

from shardkeep.collector.protocol.keys import ZapAuthenticator


def test_all_connections_that_wait_are_answered_together():
    allowed, _ = zmq.curve_keypair()
    refused = []
    with zmq.Context() as context:
        authenticator = ZapAuthenticator(context, frozenset([allowed]), lambda *args: refused.append(args))
        asking = []
        for number in range(100):
            key = allowed if number % 2 else zmq.curve_keypair()[0]
            asking.append(context.socket(zmq.REQ))
            asking[-1].connect("inproc://zeromq.zap.01")
            number = b"%d" % number
            asking[-1].send_multipart([b"1.0", number, b"", b"host", b"", b"CURVE", z85.decode(key)])
        assert authenticator.socket.poll(1000)
        authenticator.answer()
        codes = [one.recv_multipart(zmq.NOBLOCK)[2] for one in asking]
        assert codes == [b"400", b"200"] * 50
        assert len(refused) == 50
        for one in asking:
            one.close(linger=0)
        authenticator.close()
