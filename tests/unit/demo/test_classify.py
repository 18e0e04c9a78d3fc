"""The classifiers learn what the examples show, and the same each time."""

import pytest
from support_desk.classify import Example, KeywordClassifier, NgramClassifier

EXAMPLES = [
    Example("where is my parcel", "status"),
    Example("when does the parcel arrive", "status"),
    Example("parcel is late", "status"),
    Example("I forgot my password", "account"),
    Example("the password does not work", "account"),
    Example("cannot log in with my password", "account"),
]


@pytest.fixture(params=[NgramClassifier, KeywordClassifier])
def classifier(request):
    return request.param(EXAMPLES)


def test_intents_are_told_apart(classifier):
    assert classifier.classify("has the parcel been sent?").intent == "status"
    assert classifier.classify("new password please").intent == "account"


def test_confidence_is_a_share(classifier):
    for text in ("parcel parcel parcel", "password", "", "🙂", "something else altogether"):
        assert 0 < classifier.classify(text).confidence <= 1


def test_ngrams_survive_a_typing_mistake():
    assert NgramClassifier(EXAMPLES).classify("forgott my pasword").intent == "account"


def test_fitting_twice_gives_the_same_beliefs(shop):
    first, second = NgramClassifier(shop.examples), NgramClassifier(shop.examples)
    for text in ("where is LL-20418?", "broken pot", "do you take cheques"):
        assert first.classify(text) == second.classify(text)


def test_the_fitted_classifier_knows_its_own_examples(shop):
    classifier = NgramClassifier(shop.examples)
    right = sum(classifier.classify(example.text).intent == example.intent for example in shop.examples)
    assert right / len(shop.examples) > 0.95
