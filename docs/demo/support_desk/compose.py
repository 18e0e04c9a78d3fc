"""Writes a reply from what a tool found and from the sentences of the articles that fit the message best."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from support_desk.retrieve import Hit, Retriever
from support_desk.text import sentences, stems, words
from support_desk.tools import Result, ToolCall

_SORRY = frozenset({"damaged_item", "escalate"})
_UPSET_WORDS = "angry awful broken disgraceful never ridiculous still terrible useless waiting worst wrong"
_UPSET = frozenset(_UPSET_WORDS.split())


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of the tool call: a result, or the reason why it was refused."""

    call: ToolCall
    result: Result
    refusal: str | None = None


def compose(text: str, intent: str, finding: Finding, hits: Sequence[Hit], retriever: Retriever) -> str:
    """The reply: an opening that fits the mood, what was done, and what the knowledge base says about it."""
    parts = [_opening(text, intent, finding)]
    if finding.refusal:
        parts.append(_refused(finding.refusal))
    else:
        parts.append(_SAYINGS[finding.call.name](finding.result))
    reading = finding.call.name == "read_article"
    parts.extend(_best_sentences(text, hits, retriever, most=3 if reading else 1, least=1 if reading else 3))
    return " ".join(part for part in parts if part)


def _opening(text: str, intent: str, finding: Finding) -> str:
    if finding.refusal or intent in _SORRY or _UPSET & set(words(text)):
        return "I am sorry about this."
    return "Thank you for your message."


def _refused(reason: str) -> str:
    if reason.startswith("there is no order"):
        return f"{reason[0].upper()}{reason[1:]} on file; please check the number in your confirmation."
    return f"Unfortunately {reason}."


def _best_sentences(text: str, hits: Sequence[Hit], retriever: Retriever, *, most: int, least: int) -> list[str]:
    """Up to *most* sentences of the best article that share at least *least* words with the message, as they stand."""
    if not hits:
        return []
    asked = set(stems(text))
    ranked = []
    for place, sentence in enumerate(sentences(hits[0].article.text)):
        shared = asked & set(stems(sentence))
        if len(shared) >= least:
            ranked.append((-sum(retriever.weight(term) for term in sorted(shared)), place, sentence))
    chosen = sorted(sorted(ranked)[:most], key=lambda entry: entry[1])
    if not chosen and least == 1:
        return sentences(hits[0].article.text)[:1]
    return [sentence for _, _, sentence in chosen]


def _day(iso: object) -> str:
    day = date.fromisoformat(str(iso))
    return f"{day.day} {day:%B}"


def _order_status(found: Result) -> str:
    order = found["order_id"]
    match found["status"]:
        case "placed":
            return f"Order {order} has been placed and is not packed yet."
        case "packed":
            return f"Order {order} is packed and waits for the carrier."
        case "shipped" if found["late"]:
            return f"Order {order} is running late; {found['carrier']} now expects to deliver on {_day(found['date'])}."
        case "shipped":
            return f"Order {order} is on its way with {found['carrier']} and should arrive on {_day(found['date'])}."
        case "delivered":
            return f"Order {order} was delivered by {found['carrier']} on {_day(found['date'])}."
        case _:
            return f"Order {order} has been cancelled."


def _return(found: Result) -> str:
    return (
        f"The return of {found['items']} from order {found['order_id']} is open until {_day(found['until'])}; "
        f"your label {found['label']} comes by e-mail."
    )


def _refund(found: Result) -> str:
    order = found["order_id"]
    match found["state"]:
        case "pending":
            return f"The refund of £{found['amount']:.2f} for order {order} should arrive by {_day(found['date'])}."
        case "paid":
            return f"The refund of £{found['amount']:.2f} for order {order} was paid on {_day(found['date'])}."
        case "declined":
            return f"The refund of £{found['amount']:.2f} for order {order} was declined; a colleague can look again."
        case "awaiting_parcel":
            return f"The refund of £{found['amount']:.2f} for order {order} starts when your parcel has reached us."
        case _:
            return f"There is no refund for order {order}."


def _address(found: Result) -> str:
    if found["to"] is None:
        return (
            f"The address of order {found['order_id']} can still be changed; "
            "please send the whole new address with its postcode."
        )
    return f"Order {found['order_id']} now goes to {found['to']}."


def _cancelled(found: Result) -> str:
    money = f"£{found['refunded']:.2f} go back to you" if found["refunded"] else "nothing was charged"
    return f"Order {found['order_id']} is cancelled and {money}."


def _damage(found: Result) -> str:
    return (
        f"The damage to order {found['order_id']} is noted as {found['claim']}; "
        f"with a photo we settle it by {found['remedy']}."
    )


def _payment(found: Result) -> str:
    order, total = found["order_id"], f"£{found['total']:.2f}"
    return {
        "paid": f"Order {order} has been paid once, {total}.",
        "pending": f"The payment of {total} for order {order} is still pending.",
        "failed": f"The payment of {total} for order {order} failed.",
        "duplicate": f"Order {order} was paid twice; the second {total} go back to you.",
    }[str(found["payment"])]


def _stock(found: Result) -> str:
    if found["stock"]:
        return f"{found['name']} is in stock ({found['stock']} left) and costs £{found['price']:.2f}."
    if found["restock"]:
        return f"{found['name']} is out of stock and expected back on {_day(found['restock'])}."
    return f"{found['name']} is out of stock for now."


def _handed_over(found: Result) -> str:
    about = f" about order {found['order_id']}" if found["order_id"] else ""
    return f"I hand your message{about} over to a colleague, who answers within {found['answer_within_days']} days."


_SAYINGS: dict[str, Callable[[Result], str]] = {
    "lookup_order": _order_status,
    "start_return": _return,
    "check_refund": _refund,
    "change_address": _address,
    "cancel_order": _cancelled,
    "report_damage": _damage,
    "check_payment": _payment,
    "check_stock": _stock,
    "read_article": lambda found: "",
    "send_login_link": lambda found: f"A sign-in link is on its way to {found['email']}; it works for one hour.",
    "request_order_number": lambda found: "Please send me the order number, LL and five digits.",
    "escalate": _handed_over,
}
