"""The two exceptions for wrong arguments: their parts, their text, and where they are raised."""

import pickle
import threading

import pytest

import rope_any as ra
from rope_any._checks import NOTHING, ArgumentError, Text, inside


def refusal(call, error):
    with pytest.raises(error) as caught:
        call()
    return caught.value


def test_they_carry_the_argument_what_is_wanted_and_what_it_got():
    error = refusal(lambda: ra.frequencies(8.0), ra.ArgumentTypeError)
    assert (error.argument, error.wanted, error.got, error.hint, error.where) == (
        "rotary_dim",
        "be an integer",
        "float 8.0",
        "",
        "",
    )
    assert isinstance(error, TypeError) and not isinstance(error, ValueError)
    error = refusal(lambda: ra.frequencies(8, base=-1), ra.ArgumentValueError)
    assert (error.argument, error.wanted, error.got) == ("base", "be positive and finite", "-1.0")
    assert isinstance(error, ValueError) and str(error) == "base must be positive and finite; got -1.0"


@pytest.mark.parametrize("kind", [ra.ArgumentTypeError, ra.ArgumentValueError])
def test_they_are_pickled_with_the_text_of_what_they_got(kind):
    error = kind("x", "be a number", lambda: None, "use float()", "a.json")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind and str(copy) == str(error) and str(copy).startswith("a.json: x must be a number; got ")
    assert (copy.argument, copy.wanted, copy.got, copy.hint, copy.where) == (
        error.argument,
        error.wanted,
        error.got,
        "use float()",
        "a.json",
    )


def test_the_sentence():
    assert str(ra.ArgumentValueError("k", "be given")) == "k must be given"
    assert str(ra.ArgumentValueError("k", "be given", Text("none"), "see q")) == "k must be given; got none; see q"
    assert str(ra.ArgumentValueError("k", "be given", NOTHING, "see q")) == "k must be given; see q"
    assert str(ra.ArgumentTypeError("k", "be a number", "x")) == "k must be a number; got str 'x'"
    assert str(ra.ArgumentValueError("k", "be half", "x")) == "k must be half; got 'x'"


def test_what_is_inside_says_where():
    error = inside("b.json", inside("rope_scaling", ra.ArgumentValueError("factor", "be positive", -1)))
    assert type(error) is ra.ArgumentValueError and error.argument == "factor"
    assert str(error) == "b.json: rope_scaling: factor must be positive; got -1"
    assert str(inside("b.json", KeyError("a"))) == repr("b.json: 'a'")


def test_nothing_is_composed_before_the_text_is_asked_for():
    class Value:
        def __repr__(self):
            pytest.fail("asked for its text")

    assert isinstance(ra.ArgumentTypeError("x", "be a number", Value()), ArgumentError)


def test_they_are_raised_in_threads():
    found = []

    def work():
        found.append(refusal(lambda: ra.frequencies(8, base=0), ra.ArgumentValueError))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {str(error) for error in found} == {str(found[0])} and len(found) == 4


def test_torch_compile_raises_them_too():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rope = ra.Rope(ra.frequencies(8), pairing="half")
    x = torch.ones(3, 4)
    with pytest.raises(ra.ArgumentValueError) as plain:
        rope.apply(x)
    torch._dynamo.reset()
    compiled = torch.compile(rope.apply, backend="eager")
    with pytest.raises(ra.ArgumentValueError) as caught:
        compiled(x)
    assert str(caught.value) == str(plain.value)
