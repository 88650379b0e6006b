"""The HTML builder escapes everything that is not markup."""

from gateway.console.html import Html, h, markup


def test_text_and_attributes_are_escaped() -> None:
    hostile = "<script>alert('x')</script>\"&"
    shown = h.p(hostile, title=hostile)
    assert "<script>" not in shown
    assert shown.count("&lt;script&gt;") == 2
    assert shown.count("&quot;") == 2


def test_markup_is_not_escaped_again_and_none_is_omitted() -> None:
    assert markup(h.b("x"), None, ["<", h.i(1)], 2.5) == "<b>x</b>&lt;<i>1</i>2.5"
    assert h.input(name="a", class_="b", data_part="c", required=True, checked=False, value=None) == (
        '<input name="a" class="b" data-part="c" required>'
    )


def test_concatenation_with_plain_text_is_escaped() -> None:
    assert isinstance(h.p("x"), Html)
    assert not isinstance(h.p("x") + "<b>", Html)
    assert markup(h.p("x") + "<b>") == "&lt;p&gt;x&lt;/p&gt;&lt;b&gt;"
