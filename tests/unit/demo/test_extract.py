"""What the tools need is found in messages as people write them."""

import pytest
from support_desk import extract
from support_desk.extract import ProductFinder
from support_desk.text import stem, words


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("where is LL-20418", "LL-20418"),
        ("ll20418??", "LL-20418"),
        ("LL 20418, please", "LL-20418"),
        ("order #20418", "LL-20418"),
        ("it is 20418.", "LL-20418"),
        ("first LL-20418, then LL-20425", "LL-20418"),
        ("ring me on +44 7700 900144", None),
        ("it cost £10000", None),
        ("tracking HP762718", None),
        ("no number at all", None),
    ],
)
def test_order_numbers(text, number):
    assert extract.order_number(text) == number


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("send it to 14 Mill Lane, Netherby NB2 6AA instead", "14 Mill Lane, Netherby NB2 6AA"),
        ("It's Flat 7, 90 Harbour Road, Marlow Bay MB1 5TR!", "Flat 7, 90 Harbour Road, Marlow Bay MB1 5TR"),
        ("2 Lock Keeper's Yard, Netherby NB4 3RT", "2 Lock Keeper's Yard, Netherby NB4 3RT"),
        ("the postcode is NB2 6AA", None),
    ],
)
def test_addresses(text, address):
    assert extract.address(text) == address


def test_emails():
    assert extract.email("write to juno.farr@inbox.example.") == "juno.farr@inbox.example"
    assert extract.email("@LarkspurLoam hello") is None


@pytest.mark.parametrize(
    ("text", "sku"),
    [
        ("are the 20cm terracotta pots sold out?", "terracotta-pot-20"),
        ("do you have a calathea", "calathea-orbifolia"),
        ("how tall are the olive trees", "olive-tree"),
        ("is anything coming in", None),
    ],
)
def test_products(shop, text, sku):
    assert ProductFinder(shop.products.values()).find(text) == sku


def test_words_are_plain_and_order_numbers_alike():
    assert words("Où est LL-20418, Zoë’s?") == ["ou", "est", "xorder", "zoe's", "?"]
    assert words("a 20cm pot for £3.50") == ["a", "20", "cm", "pot", "for", "xmoney"]


def test_stems_join_forms_of_a_word():
    assert stem("dropping") == stem("drops") == stem("dropped") == "drop"
    assert stem("leaves") == stem("leaf")
