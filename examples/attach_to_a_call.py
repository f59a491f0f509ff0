"""Attach to a phone or browser call from your own program and say which key the caller presses.

Start the gateway without an agent, then this program, then a call:

    vivavoce serve --agent none
    python attach_to_a_call.py
    vivavoce phone 127.0.0.1 9092 --seconds 15 --dtmf 12 --out heard.wav

The program waits for a call without an agent, sends text word by word as a language model does, prints the
words when the caller hears them, and lets the caller interrupt. It needs only ``pip install websockets``.
"""

import asyncio
import json
import sys

try:
    from websockets.asyncio.client import ClientConnection, connect
    from websockets.exceptions import WebSocketException
except ImportError:
    sys.exit("websockets 13 or later is missing: pip install websockets")

GATEWAY = "ws://127.0.0.1:8080/v1/calls/next/socket"


async def say(call: ClientConnection, text: str) -> None:
    """Send an utterance word by word, at the pace of a language model."""
    for word in text.split(" "):
        await call.send(json.dumps({"type": "text", "text": word + " "}))
        await asyncio.sleep(0.025)
    await call.send(json.dumps({"type": "end"}))


async def attach(gateway: str) -> None:
    """Answer one call until it ends."""
    async with connect(gateway) as call:
        await call.send(json.dumps({"type": "on_speech", "action": "discard"}))
        async for message in call:
            event = json.loads(message)
            match event["type"]:
                case "started":
                    print("call", event["call"], "from", event["peer"])
                    await say(call, "Hello! Press any key, and I will tell you which one it was.")
                case "word":
                    print(event["text"], end=" ", flush=True)
                case "dtmf":
                    await call.send(json.dumps({"type": "discard"}))
                    await say(call, f"That was key {event['digit']}.")
                case "discarded":
                    print("\n  interrupted after:", event["heard"] or "nothing")
                case "hung_up":
                    print("\nthe caller hung up")


if __name__ == "__main__":
    gateway = sys.argv[1] if len(sys.argv) > 1 else GATEWAY
    try:
        asyncio.run(attach(gateway))
    except (OSError, WebSocketException) as error:
        sys.exit(f"{gateway}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
