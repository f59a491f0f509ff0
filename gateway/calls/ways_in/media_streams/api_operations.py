"""OpenAPI descriptions of the webhooks of carriers."""

from typing import Any, Final

from ....web.openapi.operations import content_response, operation
from ....web.responses import native_errors

_ERRORS: Final = native_errors({404: "No such carrier."})


def _webhook(operation_id: str) -> dict[str, Any]:
    return operation(
        operation_id,
        "Answer a carrier's webhook with the document that connects the call.",
        content_response("TwiML, TeXML, Plivo's XML.", "application/xml", "application/json"),
        _ERRORS,
        description="The request is authenticated by the carrier's signature, the token in the URL or a key.",
        public=True,
    )


ANSWER: Final = {"POST": _webhook("answerCarrier"), "GET": _webhook("answerCarrierGet")}
ANSWER_WITH_TOKEN: Final = {
    "POST": _webhook("answerCarrierWithToken"),
    "GET": _webhook("answerCarrierWithTokenGet"),
}
