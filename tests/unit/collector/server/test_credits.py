from hypothesis import given
from hypothesis import strategies as st

from shardkeep.collector.server.credits import CreditPool

_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "close", "send", "want", "back", "grant", "recall"]),
        st.integers(0, 7),
        st.integers(0, 1 << 20),
    ),
    max_size=80,
)


@given(_STEPS, st.integers(1 << 16, 1 << 22))
def test_reserved_credit_never_exceeds_the_pool(steps, size):
    pool = CreditPool(size)
    sent: dict[int, int] = {}
    waiting, recalled = set(), set()
    for what, client, count in steps:
        if what == "open":
            waiting.discard(client)
            recalled.discard(client)
            if pool.open(client) == 0:
                waiting.add(client)
            sent[client] = 0
        elif what == "grant":
            waiting -= set(pool.grant())
        elif what == "recall":
            have_credit = {one for one in sent if pool.limit(one) > sent[one]}
            found = pool.recall()
            assert sorted(found) == sorted(have_credit - recalled if waiting else set())
            recalled |= set(found)
            for one in found:
                pool.give_back(one, sent[one])
        elif client not in sent:
            continue
        elif what == "close":
            pool.close(client)
            del sent[client]
            waiting.discard(client)
        elif what == "send":
            count = min(count, pool.limit(client) - sent[client])
            sent[client] += count
            assert pool.receive(client, count)
        elif what == "want":
            pool.request(client, count)
            waiting.add(client)
            recalled.discard(client)
        elif what == "back":
            pool.give_back(client, sent[client])
        under_way = sum(max(pool.limit(one) - sent[one], 0) for one in sent)
        assert 0 <= under_way <= size
        assert under_way == pool.reserved


def test_every_client_is_served():
    pool = CreditPool(1 << 17)
    sent = dict.fromkeys(range(50), 0)
    done = dict.fromkeys(sent, 0)

    def send(one):
        if pool.limit(one) - sent[one] < 10_000:
            return False
        sent[one] += 10_000
        pool.receive(one, 10_000)
        done[one] += 1
        return True

    for one in sent:
        pool.open(one)
    for _ in range(200):
        for one in sent:
            if not send(one):
                pool.request(one, 10_000)
        pool.grant()
        for one in pool.recall():
            send(one)
            pool.give_back(one, sent[one])
        pool.grant()
    assert min(done.values()) > 20
    assert max(done.values()) <= 2 * min(done.values()) + 1


def test_bytes_far_beyond_the_credit_are_detected_and_counted():
    pool = CreditPool(1 << 24)
    pool.open("a")
    assert not pool.receive("a", 9 << 20)
    # Both sides have to count the same, or the client would wait for ever.
    pool.request("a", 1000)
    assert pool.grant() == ["a"]
    assert pool.limit("a") >= (9 << 20) + 1000


def test_a_limit_is_due_when_half_of_the_credit_is_used():
    pool = CreditPool(1 << 20)
    sent_limit = pool.open("a")
    assert not pool.is_limit_due("a", sent_limit)
    pool.receive("a", sent_limit // 2 - 1)
    assert not pool.is_limit_due("a", sent_limit)
    pool.receive("a", 1)
    assert pool.is_limit_due("a", sent_limit)
    assert not pool.is_limit_due("a", pool.limit("a"))


def test_no_client_waits_for_a_small_batch_where_there_are_many():
    pool = CreditPool(64 << 20)
    limits = [pool.open(client) for client in range(10_000)]
    assert limits[0] == limits[1000] == 16 << 10
    sent = 0
    for _ in range(3):
        assert all(pool.limit(client) >= sent + 1500 for client in range(10_000))
        for client in range(10_000):
            pool.receive(client, 1500)
        sent += 1500
    assert pool.recall() == []


def test_a_client_with_a_small_share_is_sent_its_new_limit_in_time():
    pool = CreditPool(1 << 20)
    sent_limits = {client: pool.open(client) for client in range(200)}
    pool.receive(199, sent_limits[199])
    assert pool.is_limit_due(199, sent_limits[199])
