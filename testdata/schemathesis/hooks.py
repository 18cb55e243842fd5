"""How the parts of a request go together, which no schema of one of them says.

A request that is meant to be a good one is made one here, and the checks see to it that it is taken.
"""

import os

import schemathesis


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """A time of a thousand characters is looked for for minutes. TestWrongParametersAreNamedWithWhatToDo has its bound."""
    of = [raw_schema]
    while of:
        part = of.pop()
        if isinstance(part, dict):
            if "anyOf" in part:
                part.pop("maxLength", None)
            of.extend(part.values())
        elif isinstance(part, list):
            of.extend(part)


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    for part in (case.query, case.body):
        reach(part)
    fix = FIXES.get(case.operation.definition.raw.get("operationId"))
    if fix is not None:
        fix(case)


def reach(part):
    """A duration of many parts is no longer than Go can count: 292 years."""
    for name in ("since", "until"):
        text = part.get(name) if isinstance(part, dict) else None
        if isinstance(text, str) and len(text) > 12 and text[4:5] != "-":
            part[name] = "2h"


def post_messages(case):
    """A key in the header is that of the body's field; with an array there is none."""
    in_body = isinstance(case.body, dict) and case.body.get("idempotencyKey")
    if in_body or isinstance(case.body, list):
        case.headers.pop("Idempotency-Key", None)


def page(case):
    """A cursor is one that the list gave, 100 messages come with content, and processed ones have no reason."""
    case.query.pop("cursor", None)
    if case.query.get("content") == "true" or case.query.get("content") is True:
        case.query["limit"] = min(int(case.query.get("limit", 50)), 100)
    if case.query.get("status") == "processed":
        case.query.pop("reason", None)


def place_or_id(case):
    """A message is asked for by its key, whose tenant and topic narrow it, or by its ID, or by its place.

    What a key may be the ingress' document says. Here it may be any that a program has taken, in UTF-8 too.
    """
    if case.headers.get("Idempotency-Key"):
        case.headers["Idempotency-Key"] = "order-1"
        for name in ("id", "partition", "offset"):
            case.query.pop(name, None)
        return
    case.query.pop("tenant", None)
    if len({"topic", "partition", "offset"} & case.query.keys()) == 3 and case.query["topic"]:
        case.query.pop("id", None)
        return
    for name in ("topic", "partition", "offset"):
        case.query.pop(name, None)
    case.query["id"] = case.query.get("id") or "order-1"


def paused(of):
    """A partition's name ends in its number."""
    if of.get("kind") == "partition":
        of["name"] = of["name"][:100].strip() + "/0"


def chosen(case):
    """Dead letters are chosen, or are all of them; and why they are changed is said."""
    body = case.body
    narrow = [body.get(name) for name in ("topic", "handler", "tenant", "reason", "key", "since", "until", "ids")]
    body["all"] = not any(narrow)
    body["why"] = (body.get("why") or "").strip() or "because"


def counted(case):
    """A moment is one that a count gave."""
    case.query.pop("moment", None)


def job(case):
    """The same of the letters that a job is of."""
    chosen(case)
    case.body.pop("moment", None)


def rerun(of, ids):
    """A handler that there is, how it orders, and which of its messages: offsets are a partition's, which is a topic's."""
    of["handler"] = "book"
    of["ordering"] = of.get("ordering") or "key"
    of.pop("set", None)  # one that a plan gave
    for name in ("partition", "from_offset", "to_offset"):
        if isinstance(of.get(name), float):
            of[name] = int(of[name])  # 2.0 is an integer to JSON Schema, and to no Go program
    if of.get("topic") and of.get("partition") is not None:
        if of.get("to_offset") is not None:
            of["to_offset"] = max(int(of["to_offset"]), int(of.get("from_offset") or 0) + 1)
        return
    for name in ("partition", "from_offset", "to_offset"):
        of.pop(name, None)
    if not any(of.get(name) for name in (ids, "key", "since", "until")):
        of["since"] = "2h"


def replay(of):
    """A replay is of a topic that is read, of all its handlers, from a place that there is."""
    of["topic"], of["from"] = os.environ["TOPIC"], "earliest"
    for name in ("handler", "to", "partition", "partitions"):
        of.pop(name, None)
    if isinstance(of.get("rate"), float):
        of["rate"] = int(of["rate"])


FIXES = {
    "postMessages": post_messages,
    "listMessages": page,
    "listOutboxMessages": page,
    "listDeadLetters": page,
    "listConflicts": page,
    "listAudit": page,
    "listOutboxAudit": page,
    "listJobs": page,
    "listOutboxJobs": page,
    "countDeadLetters": counted,
    "countOutboxDeadLetters": counted,
    "planRerun": lambda case: rerun(case.query, "id"),
    "createRerun": lambda case: rerun(case.body, "ids"),
    "createJob": job,
    "createOutboxJob": job,
    "planReplay": lambda case: replay(case.query),
    "createReplay": lambda case: replay(case.body),
    "explain": place_or_id,
    "pause": lambda case: paused(case.body),
    "pauseOutbox": lambda case: paused(case.body),
    "resume": lambda case: paused(case.query),
    "resumeOutbox": lambda case: paused(case.query),
    "redriveDeadLetters": chosen,
    "redriveOutbox": chosen,
    "discardDeadLetters": chosen,
    "discardOutbox": chosen,
}
