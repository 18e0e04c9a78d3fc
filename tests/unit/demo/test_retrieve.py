"""The retrievers rank articles, the better one by what is rare."""

import pytest
from support_desk.retrieve import Article, Bm25Retriever, OverlapRetriever

ARTICLES = [
    Article("delivery", "Delivery", "The parcel comes with the parcel service in two days."),
    Article("frost", "Frost", "The parcel is held back when frost is forecast."),
    Article("gnats", "Little flies", "Gnats live in wet compost."),
]


@pytest.fixture(params=[Bm25Retriever, OverlapRetriever])
def retriever(request):
    return request.param(ARTICLES)


def test_the_article_with_the_words_of_the_query_comes_first(retriever):
    assert retriever.search("gnats in the compost")[0].article.id == "gnats"


def test_nothing_is_found_without_a_common_word(retriever):
    assert retriever.search("hydrangea") == []
    assert retriever.search("") == []


def test_no_more_than_the_limit_is_returned(retriever):
    assert len(retriever.search("parcel", limit=1)) == 1


def test_a_rare_word_counts_for_more_than_a_common_one():
    assert Bm25Retriever(ARTICLES).search("parcel frost")[0].article.id == "frost"


def test_stems_meet_over_different_endings():
    assert Bm25Retriever(ARTICLES).search("forecasting")[0].article.id == "frost"


@pytest.mark.parametrize(
    ("query", "article"),
    [
        ("how often do I water a snake plant", "watering-houseplants"),
        ("charged twice", "double-charge"),
        ("can I collect at the nursery", "collect-from-nursery"),
        ("is it poisonous for cats", "pets-and-children"),
        ("unsubscribe from the newsletter", "newsletter"),
    ],
)
def test_the_knowledge_base_answers_plain_questions(shop, query, article):
    assert Bm25Retriever(tuple(shop.articles.values())).search(query)[0].article.id == article
