"""Computes how many sessions fit into device memory, in speech ids: the flow keeps state of a whole sentence.

    memory     |kept voices|voice + sentence|voice + sentence|voice + sentence|......|
    sessions                 open             open             one more         too little for another

A sentence counts with an expected length until it is longer. Its memory is free when it ends.
"""

from collections.abc import Collection


def max_sessions_in_memory(
    memory_ids: int, prepared_voice_ids: int, ids_by_session: Collection[int], new_session_ids: int
) -> int:
    """Sessions that may be open at once, open ones included; at least one.

    All sizes are speech ids. memory_ids: total room. prepared_voice_ids: taken by prepared voices.
    ids_by_session: taken by each open session. new_session_ids: expected for one more.
    """
    additional = (memory_ids - prepared_voice_ids - sum(ids_by_session)) // new_session_ids
    return max(1, len(ids_by_session) + additional)
