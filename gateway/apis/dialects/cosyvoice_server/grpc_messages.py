"""Messages of upstream CosyVoice's gRPC service, built when they are needed.

    service CosyVoice { rpc Inference(Request) returns (stream Response); }      package cosyvoice

The names, numbers and types of the fields are those that upstream's client is compiled with.

Source: FunAudioLLM/CosyVoice@ace7c47 runtime/python/grpc/cosyvoice.proto, of which this is the descriptor.
"""

from typing import Any, Final

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

SERVICE: Final = "cosyvoice.CosyVoice"
METHOD: Final = "Inference"
_PAYLOAD: Final = "RequestPayload"  # the union in Request
# Fields in the order of their numbers, from 1.
_FIELDS: Final[dict[str, dict[str, str]]] = {
    "sftRequest": {"spk_id": "string", "tts_text": "string"},
    "zeroshotRequest": {"tts_text": "string", "prompt_text": "string", "prompt_audio": "bytes"},
    "crosslingualRequest": {"tts_text": "string", "prompt_audio": "bytes"},
    "instructRequest": {"tts_text": "string", "spk_id": "string", "instruct_text": "string"},
    "Response": {"tts_audio": "bytes"},
    "Request": {
        "sft_request": "sftRequest",
        "zero_shot_request": "zeroshotRequest",
        "cross_lingual_request": "crosslingualRequest",
        "instruct_request": "instructRequest",
    },
}


class CosyVoiceMessages:
    """The message classes of the service, and the pool of their descriptors for reflection."""

    def __init__(self) -> None:
        self.pool = descriptor_pool.DescriptorPool()
        self.pool.AddSerializedFile(_file().SerializeToString())
        self.request: Any = self._message("Request")
        self.response: Any = self._message("Response")

    def _message(self, name: str) -> Any:
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"cosyvoice.{name}"))

    @staticmethod
    def payload_of(request: Any) -> tuple[str, dict[str, Any]]:
        """Return the name of the payload, "" if there is none, and its fields by name."""
        name = request.WhichOneof(_PAYLOAD)
        if name is None:
            return "", {}
        payload = getattr(request, name)
        return name, {field.name: getattr(payload, field.name) for field in payload.DESCRIPTOR.fields}


def _file() -> Any:
    field_type = descriptor_pb2.FieldDescriptorProto
    scalars = {"string": field_type.TYPE_STRING, "bytes": field_type.TYPE_BYTES}
    file = descriptor_pb2.FileDescriptorProto(name="cosyvoice.proto", package="cosyvoice", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            added = message.field.add(name=field, number=number, label=field_type.LABEL_OPTIONAL)
            added.type = scalars.get(kind, field_type.TYPE_MESSAGE)
            if kind not in scalars:
                added.type_name, added.oneof_index = f".cosyvoice.{kind}", 0
        if name == "Request":
            message.oneof_decl.add(name=_PAYLOAD)
    service = file.service.add(name="CosyVoice")
    service.method.add(
        name=METHOD,
        input_type=".cosyvoice.Request",
        output_type=".cosyvoice.Response",
        server_streaming=True,
    )
    return file
