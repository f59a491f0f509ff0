"""Scenarios of SIPp for calls with a password and changes, and for phones that ring, answer and transfer."""

from typing import Final

_HEAD: Final = '<?xml version="1.0" encoding="ISO-8859-1" ?>\n<scenario name="{name}">\n'
_COMMON: Final = """Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: anna <sip:anna@[local_ip]:[local_port]>;tag=[pid]SIPpTag00[call_number]
To: <sip:100@[remote_ip]:[remote_port]>[peer_tag_param]
Call-ID: [call_id]
Contact: sip:anna@[local_ip]:[local_port]
Max-Forwards: 70"""
_SDP: Final = """v=0
o=user1 53655765 2353687637 IN IP[local_ip_type] [local_ip]
s=-
c=IN IP[media_ip_type] [media_ip]
t=0 0
m=audio [media_port] RTP/AVP 0
a=rtpmap:0 PCMU/8000"""
_URI: Final = "sip:100@[remote_ip]:[remote_port]"


def _request(
    method: str, cseq: int, *headers: str, body: str = "", kind: str = "application/sdp", auth: bool = False
) -> str:
    lines = [f"{method} {_URI} SIP/2.0", _COMMON, f"CSeq: {cseq} {method}", *headers]
    if auth:
        lines.append("[authentication]")
    if body:
        lines.append(f"Content-Type: {kind}")
    lines.append("Content-Length: [len]" if body else "Content-Length: 0")
    text = "\n".join(lines) + "\n\n" + (body + "\n" if body else "")
    if auth:  # a new call, without the tag of the challenge
        text = text.replace("[peer_tag_param]", "")
    retrans = ' retrans="500"' if method != "ACK" else ""
    return f"<send{retrans}><![CDATA[\n{text}]]></send>\n"


def _response(status: str, *headers: str, body: str = "") -> str:
    lines = [
        f"SIP/2.0 {status}",
        "[last_Via:]",
        "[last_From:]",
        "[last_To:];tag=[pid]SIPpTag01[call_number]",
        "[last_Call-ID:]",
        "[last_CSeq:]",
        "Contact: <sip:[local_ip]:[local_port];transport=[transport]>",
        *headers,
    ]
    if body:
        lines.append("Content-Type: application/sdp")
    lines.append("Content-Length: [len]" if body else "Content-Length: 0")
    text = "\n".join(lines) + "\n\n" + (body + "\n" if body else "")
    return f"<send><![CDATA[\n{text}]]></send>\n"


def _recv(what: str, *, optional: bool = False, auth: bool = False) -> str:
    kind = "response" if what.isdecimal() else "request"
    more = ' optional="true"' if optional else ""
    more += ' auth="true"' if auth else ' rrs="true"'
    return f'<recv {kind}="{what}"{more}></recv>\n'


# A call with a password, put on hold and taken back, with a key in an INFO.
CALLER_WITH_CHANGES: Final = (
    _HEAD.format(name="caller with changes")
    + _request("INVITE", 1, body=_SDP)
    + _recv("401", auth=True)
    + _request("ACK", 1)
    + _request("INVITE", 2, body=_SDP, auth=True)
    + _recv("100", optional=True)
    + _recv("200")
    + _request("ACK", 2)
    + '<pause milliseconds="300"/>\n'
    + _request("INVITE", 3, body=f"{_SDP}\na=sendonly")
    + _recv("200")
    + _request("ACK", 3)
    + _request("INVITE", 4, body=f"{_SDP}\na=sendrecv")
    + _recv("200")
    + _request("ACK", 4)
    + _request("INFO", 5, body="Signal=7\nDuration=160", kind="application/dtmf-relay")
    + _recv("200")
    + _request("BYE", 6)
    + _recv("200")
    + "</scenario>\n"
)
# A caller whose CANCEL comes after the answer: the call is up, until its BYE.
CANCELS: Final = (
    _HEAD.format(name="cancels")
    + _request("INVITE", 1, body=_SDP)
    + _recv("100", optional=True)
    + _recv("200")
    + _request("CANCEL", 1).replace("[branch]", "[branch-3]").replace("[peer_tag_param]", "")
    + _recv("200")
    + _request("ACK", 1)
    + '<pause milliseconds="300"/>\n'
    + _request("BYE", 2)
    + _recv("200")
    + "</scenario>\n"
)
# A phone that rings until the caller gives up.
CANCELLED: Final = (
    _HEAD.format(name="cancelled")
    + _recv("INVITE")
    + _response("180 Ringing")
    + _recv("CANCEL")
    + _response("200 OK")
    + _response("487 Request Terminated").replace("[last_CSeq:]", "CSeq: 1 INVITE")
    + _recv("ACK")
    + "</scenario>\n"
)


# A server that asks for the password ``secret``.
CHALLENGING: Final = (
    _HEAD.format(name="challenging")
    + _recv("INVITE")
    + _response(
        "401 Unauthorized",
        'WWW-Authenticate: Digest realm="trunk", nonce="1234", qop="auth", algorithm=MD5',
    )
    + _recv("ACK")
    + """<recv request="INVITE" rrs="true"><action>
<verifyauth assign_to="right" username="4930" password="secret"/>
</action></recv>
<nop condexec="right" condexec_inverse="true"><action><error message="wrong password"/></action></nop>
"""
    + _response("200 OK", body=_SDP)
    + _recv("ACK")
    + _recv("BYE")
    + _response("200 OK").replace("[last_To:];tag=[pid]SIPpTag01[call_number]", "[last_To:]")
    + "</scenario>\n"
)


def _notify(cseq: int, status: str, state: str) -> str:
    lines = [
        "NOTIFY [next_url] SIP/2.0",
        "Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]",
        "From: [$me]",
        "To: [$peer]",
        "[last_Call-ID:]",
        f"CSeq: {cseq} NOTIFY",
        "Contact: <sip:[local_ip]:[local_port]>",
        "Max-Forwards: 70",
        "Event: refer",
        f"Subscription-State: {state}",
        "Content-Type: message/sipfrag",
        "Content-Length: [len]",
    ]
    text = "\n".join(lines) + f"\n\nSIP/2.0 {status}\n"
    return f'<send retrans="500"><![CDATA[\n{text}]]></send>\n'


_KEEP: Final = """<recv request="REFER" rrs="true"><action>
<ereg regexp="[^ ].*" search_in="hdr" header="To:" assign_to="me"/>
<ereg regexp="[^ ].*" search_in="hdr" header="From:" assign_to="peer"/>
</action></recv>
"""
# A phone that answers, and transfers itself as it is asked to.
TRANSFERRED: Final = (
    _HEAD.format(name="transferred")
    + _recv("INVITE")
    + _response("180 Ringing")
    + _response("200 OK", body=_SDP)
    + _recv("ACK")
    + _KEEP
    + _response("202 Accepted").replace("[last_To:];tag=[pid]SIPpTag01[call_number]", "[last_To:]")
    + _notify(1, "100 Trying", "active;expires=60")
    + _recv("200")
    + _notify(2, "200 OK", "terminated;reason=noresource")
    + _recv("200")
    + _recv("BYE")
    + _response("200 OK").replace("[last_To:];tag=[pid]SIPpTag01[call_number]", "[last_To:]")
    + "</scenario>\n"
)
