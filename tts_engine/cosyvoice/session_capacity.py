"""How many sessions there is memory for, reckoned in speech ids: flow and vocoder remember all of a sentence.

    memory     |voices kept|voice + sentence|voice + sentence|voice + sentence|......|
    sessions                 open             open             one more: likely        too little for another

A sentence is reckoned with a likely length until it is longer; what it held is free when it ends.
"""

from collections.abc import Collection


def max_sessions_in_memory(
    memory_ids: int, prepared_voice_ids: int, ids_by_session: Collection[int], new_session_ids: int
) -> int:
    """Sessions that may be open, those that are included; at least one, who has nobody to share with.

    memory_ids: that there is room for. kept: of them, those of prepared voices. held: by each session.
    newcomer: that one more is likely to hold.
    """
    additional = (memory_ids - prepared_voice_ids - sum(ids_by_session)) // new_session_ids
    return max(1, len(ids_by_session) + additional)
