"""ElevenLabs' lists: voices, models, and the user with its quota.

``GET /v1/models`` is also OpenAI's: a request with ElevenLabs' header ``xi-api-key`` is ElevenLabs'.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field, RootModel
from starlette.routing import Match
from starlette.types import Scope as AsgiScope

from .....tts_engine.errors import UnknownVoice
from ....access.access_control import Grant
from ....web.openapi.operations import ACCESS_ERRORS, error_responses, json_response, operation
from ...kits.http_api import Endpoint, SpeechHttpApi
from ...kits.request_fields import validated
from .errors import ELEVENLABS_ERRORS
from .models import MAX_TEXT_CHARACTERS, ElevenLabsErrorBody

_ID: Final = "{voice_id}"
_SETTINGS: Final = "Settings of a voice"
_MODEL_IDS: Final = (
    "eleven_multilingual_v2",
    "eleven_flash_v2_5",
    "eleven_flash_v2",
    "eleven_turbo_v2_5",
    "eleven_turbo_v2",
)
_ERRORS: Final = error_responses(ElevenLabsErrorBody, ACCESS_ERRORS, {422: "A parameter is invalid."})
_UNLIMITED_CHARACTERS: Final = 10**9  # for a key without a quota


class ElevenLabsVoice(BaseModel):
    """A voice."""

    voice_id: str
    name: str
    category: Literal["premade", "cloned"]
    description: str
    labels: dict[str, str]
    samples: None = None
    preview_url: None = None
    available_for_tiers: list[str] = []
    high_quality_base_model_ids: list[str] = []
    settings: None = None
    is_owner: Annotated[bool, Field(description="Whether the key has enrolled it.")]


class ElevenLabsVoiceList(BaseModel):
    """All voices."""

    voices: list[ElevenLabsVoice]


class ElevenLabsVoicePage(ElevenLabsVoiceList):
    """A page of voices."""

    has_more: bool
    total_count: int
    next_page_token: str | None = None


class ElevenLabsLanguage(BaseModel):
    """A language of a model."""

    language_id: str
    name: str


class ElevenLabsListedModel(BaseModel):
    """A model: a bundle, or a name for the loaded one."""

    model_id: str
    name: str
    can_do_text_to_speech: bool = True
    can_do_voice_conversion: bool = False
    can_be_finetuned: bool = False
    can_use_style: bool = False
    can_use_speaker_boost: bool = False
    serves_pro_voices: bool = False
    token_cost_factor: float = 1.0
    description: str = "The model that the server has loaded."
    requires_alpha_access: bool = False
    maximum_text_length_per_request: int = MAX_TEXT_CHARACTERS
    languages: list[ElevenLabsLanguage]


class ElevenLabsModelList(RootModel[list[ElevenLabsListedModel]]):
    """The models."""


class ElevenLabsListedSettings(BaseModel):
    """Settings of a voice; only the speed has an effect here."""

    stability: float = 0.5
    similarity_boost: float = 0.75
    style: float = 0.0
    use_speaker_boost: bool = True
    speed: float = 1.0


class ElevenLabsPrice(BaseModel):
    """An amount of money."""

    amount: str = "0"
    currency: str = "usd"


class ElevenLabsSubscription(BaseModel):
    """The quota of the key; nothing is counted over months, nor paid for, here.

    ElevenLabs' SDK for Node.js raises an error if one of these fields is missing.
    """

    tier: str = "self-hosted"
    character_count: int = 0
    character_limit: int = _UNLIMITED_CHARACTERS
    max_credit_limit_extension: int | Literal["unlimited"] = 0
    can_extend_character_limit: bool = False
    allowed_to_extend_character_limit: bool = False
    voice_slots_used: int = 0
    professional_voice_slots_used: int = 0
    professional_voice_slots_used_in_workspace: int = 0
    voice_limit: int = 0
    voice_add_edit_counter: int = 0
    professional_voice_limit: int = 0
    can_extend_voice_limit: bool = False
    can_use_instant_voice_cloning: bool = False
    can_use_professional_voice_cloning: bool = False
    current_overage: ElevenLabsPrice = ElevenLabsPrice()
    status: str = "active"
    open_invoices: list[str] = []
    has_open_invoices: bool = False


class ElevenLabsUser(BaseModel):
    """The user of the key."""

    user_id: str
    workspace_id: str
    subscription: ElevenLabsSubscription
    is_new_user: bool = False
    can_use_delayed_payment_methods: bool = False
    is_onboarding_completed: bool = True
    is_onboarding_checklist_completed: bool = True
    created_at: Annotated[int, Field(description="Not known here.")] = 0
    seat_type: str = "workspace_member"


class ElevenLabsVoiceQuery(BaseModel):
    """Parameters of a page of voices."""

    page_size: Annotated[int, Field(ge=1, le=100)] = 10
    next_page_token: Annotated[int, Field(ge=0)] = 0
    search: str = ""


class ElevenLabsListings(SpeechHttpApi):
    """The lists of one server; belongs to its event loop."""

    name = "elevenlabs"
    errors = ELEVENLABS_ERRORS
    error_formats = ELEVENLABS_ERRORS.formats("/v1/voices", "/v2/voices", "/v1/user")

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        settings, quota = ElevenLabsListedSettings, ElevenLabsSubscription
        of_voice = self._voice_settings
        for path, answer, model, name, summary in (
            ("/v1/voices", self._list_voices, ElevenLabsVoiceList, "Voices", "List the voices"),
            ("/v2/voices", self._page_voices, ElevenLabsVoicePage, "VoicePage", "Page voices"),
            (f"/v1/voices/{_ID}", self._describe_voice, ElevenLabsVoice, "Voice", "Describe a voice"),
            (
                "/v1/voices/settings/default",
                of_voice,
                settings,
                "DefaultVoiceSettings",
                _SETTINGS,
            ),
            (f"/v1/voices/{_ID}/settings", of_voice, settings, "VoiceSettings", _SETTINGS),
            ("/v1/user", self._user, ElevenLabsUser, "User", "Describe the key"),
            ("/v1/user/subscription", self._subscription, quota, "Subscription", "Describe the quota"),
        ):
            names = ("voice_id",) if _ID in path else ()
            described = operation(
                f"elevenLabs{name}",
                f"{summary}, as ElevenLabs does.",
                json_response(model),
                _ERRORS,
                error_responses(ElevenLabsErrorBody, {404: "No such voice."} if names else {}),
                path_parameters=names,
            )
            yield f"GET {path}", self.listing(answer), described

    def routes(self) -> APIRouter:
        """Return the routes, which check keys themselves."""
        router = super().routes()
        # The document has one description of a path, OpenAI's.
        models = self.listing(self._list_models)
        router.routes.append(
            _ElevenLabsModelsRoute("/v1/models", models, methods=["GET"], include_in_schema=False)
        )
        return router

    def _list_voices(self, request: Request, grant: Grant | None) -> ElevenLabsVoiceList:
        return ElevenLabsVoiceList(voices=self._described(grant))

    def _page_voices(self, request: Request, grant: Grant | None) -> ElevenLabsVoicePage:
        query = validated(ElevenLabsVoiceQuery.model_validate, dict(request.query_params), "query")
        sought = query.search.casefold()
        found = [
            voice for voice in self._described(grant) if sought in f"{voice.voice_id} {voice.name}".casefold()
        ]
        stop = query.next_page_token + query.page_size
        return ElevenLabsVoicePage(
            voices=found[query.next_page_token : stop],
            has_more=stop < len(found),
            total_count=len(found),
            next_page_token=str(stop) if stop < len(found) else None,
        )

    def _describe_voice(self, request: Request, grant: Grant | None) -> ElevenLabsVoice:
        voice_id = request.path_params["voice_id"]
        for voice in self._described(grant):
            if voice.voice_id == voice_id:
                return voice
        raise UnknownVoice(f"there is no voice {voice_id!r}")

    def _voice_settings(self, request: Request, grant: Grant | None) -> ElevenLabsListedSettings:
        if "voice_id" in request.path_params:
            self._describe_voice(request, grant)
        return ElevenLabsListedSettings()

    def _list_models(self, request: Request, grant: Grant | None) -> ElevenLabsModelList:
        ids = dict.fromkeys(voice.language for voice in self.usable_voices(grant))
        languages = [ElevenLabsLanguage(language_id=one, name=one) for one in ids]
        names = (*self.server.models, *_MODEL_IDS)
        return ElevenLabsModelList(
            [ElevenLabsListedModel(model_id=name, name=name, languages=languages) for name in names]
        )

    def _user(self, request: Request, grant: Grant | None) -> ElevenLabsUser:
        user_id = "-" if grant is None else grant.key_id
        return ElevenLabsUser(user_id=user_id, workspace_id="-", subscription=ElevenLabsSubscription())

    def _subscription(self, request: Request, grant: Grant | None) -> ElevenLabsSubscription:
        return ElevenLabsSubscription()

    def _described(self, grant: Grant | None) -> list[ElevenLabsVoice]:
        return [
            ElevenLabsVoice(
                voice_id=voice.id,
                name=voice.name,
                category="premade" if voice.stored is None else "cloned",
                description=voice.description,
                labels={"language": voice.language},
                is_owner=voice.stored is not None
                and grant is not None
                and voice.stored.about.owner == grant.key_id,
            )
            for voice in self.usable_voices(grant)
        ]


class _ElevenLabsModelsRoute(APIRoute):
    """A route for requests with ElevenLabs' header; others fall to the next route of the path."""

    def matches(self, scope: AsgiScope) -> tuple[Match, AsgiScope]:
        """Return no match without the header."""
        headers: Any = scope.get("headers", ())
        if not any(name == b"xi-api-key" for name, _ in headers):
            return Match.NONE, {}
        return super().matches(scope)
