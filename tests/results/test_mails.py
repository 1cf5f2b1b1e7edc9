# SPDX-License-Identifier: BSD-2-Clause
"""Mails and archives of them: encodings, parts, attachments, and what breaks."""

from __future__ import annotations

import base64
import gzip
import io
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagepool.results import jsonio, mails
from pagepool.results.errors import ResultsError
from pagepool.results.model import ResultSet
from pagepool.results.reader import read, read_stream

DATA = Path(__file__).parents[1] / "data"
X86 = (DATA / "x86-before.txt").read_text()
V7 = (DATA / "x86-v7.txt").read_text()
FIGURES = "1/0.284 17/4.769 37/10.431 20/5.713 56/15.560 225/62.763 19/5.399 54/15.090 238/66.134"


def mail(
    body: str, subject: str = "Re: numbers", charset: str = "utf-8", cte: str | None = None
) -> EmailMessage:
    it = EmailMessage()
    it["From"] = "somebody@example.org"
    it["Subject"] = subject
    it["Date"] = "Thu, 16 Jan 2025 18:06:53 +0100"
    it.set_content(body, charset=charset, cte=cte)
    return it


def read_mail(*parts: EmailMessage | bytes, name: str = "thread.mbox") -> ResultSet:
    """One mail alone, or an archive of several."""
    raw = [part if isinstance(part, bytes) else bytes(part) for part in parts]
    if len(raw) > 1:
        raw = [b"From mboxrd@z Thu Jan  1 00:00:00 1970\n" + part + b"\n" for part in raw]
    return read_stream(io.BytesIO(b"".join(raw)), name)


def figures(results: ResultSet, build: int = 0) -> str:
    records = results.builds[build].records
    return " ".join(f"{record.cycles_printed}/{record.ns_printed}" for record in records)


def shape(results: ResultSet) -> list[tuple[str, list[int]]]:
    return [(b.label, [len(run.records) for run in b.runs]) for b in results.builds]


@pytest.mark.parametrize("coding", ["7bit", "8bit", "quoted-printable", "base64"])
def test_a_body_however_it_is_encoded(coding: str) -> None:
    it = mail(X86, cte=coding)
    results = read_mail(it, name="mail.eml")
    assert shape(results) == [("mail", [9])]
    assert figures(results) == FIGURES
    assert results.builds[0].heading == "Subject: Re: numbers"
    assert results.oddities == ()
    # A record is where it is in the file, not where it would be in the decoded text.
    source = results.builds[0].records[0].source
    assert source is not None
    if coding != "base64":
        lines = bytes(it).splitlines()
        assert b"Type:for_loop" in lines[source.line - 1]
        assert b"tsc_interval:1023590451" in lines[source.last_line - 1]


def test_a_soft_break_may_be_inside_a_number() -> None:
    text = (
        "From: a@example.org\nSubject: =?utf-8?q?before_=26_after?=\n"
        "Content-Type: text/plain; charset=utf-8\n"
        "Content-Transfer-Encoding: quoted-printable\n\n"
        "| time_bench: Type:tasklet_page_pool01_fast_path Per elem: 19 cycles(tsc) 9=\n"
        ".531 ns (step:0)\n|=20\n| loops=3D600000000\n"
    )
    results = read_mail(text.encode(), name="raw.eml")
    assert figures(results) == "19/9.531"
    assert results.builds[0].heading == "Subject: before & after"
    source = results.builds[0].records[0].source
    assert source is not None and source.line == 6
    # The same without its headers, as somebody saves a body.
    body = text.partition("\n\n")[2]
    assert figures(read_mail(body.encode())) == "19/9.531"
    # Of plain text nothing is joined inside a word.
    with pytest.raises(ResultsError):
        read_mail(body.replace("=\n", "\n").replace("=20", "").replace("=3D", "=").encode())


def test_other_alphabets() -> None:
    it = mail("Before: \u00e9t\u00e9\n\n" + X86, charset="iso-8859-15", cte="8bit")
    assert figures(read_mail(it)) == FIGURES
    bad = bytes(it).replace(b"iso-8859-15", b"no-such-charset")
    assert figures(read_mail(bad)) == FIGURES


def test_attachments_are_files_of_their_own() -> None:
    it = mail("Before:\n\nno figures here\n")
    it.add_attachment(X86, filename="before.log", cte="base64")
    it.add_attachment(
        gzip.compress(V7.encode()),
        maintype="application",
        subtype="gzip",
        filename="../../after.log.gz",
    )
    document = jsonio.dumps(read(str(DATA / "script-summary.txt"))).encode()
    it.add_attachment(document, maintype="application", subtype="json", filename="own.json")
    it.add_attachment(b"\x89PNG\r\n", maintype="image", subtype="png", filename="plot.png")
    results = read_mail(it, name="mail.eml")
    assert shape(results) == [("before", [9]), ("after", [9]), ("Before", [3]), ("After", [3])]
    # The mail's own heading is not the attachment's.
    source = results.builds[1].records[0].source
    assert source is not None
    assert (source.file, source.line) == ("mail.eml!after.log.gz", 2)


def test_a_table_in_the_mail_and_its_log_in_the_attachment() -> None:
    it = mail((DATA / "hand-tables.txt").read_text())
    it.add_attachment((DATA / "arm64-patch-by-patch.txt").read_text(), filename="raw.txt")
    results = read_mail(it, name="mail.eml")
    assert [label for label, _ in shape(results)][:3] == ["Before", "After", "07ea810753bd"]
    assert len(results.builds) == 10
    (copies,) = [oddity for oddity in results.oddities if oddity.code == "copy"]
    assert copies.text.startswith("27 records are copies of other records (mail.eml!raw.txt:")


def test_an_archive_and_its_quotes() -> None:
    first = mail(X86, "numbers")
    quote = "".join(f"> {line}" for line in X86.splitlines(keepends=True))
    second = mail(f"On Thu somebody wrote:\n{quote}\nAnd mine:\n\n{V7}", "Re: numbers")
    results = read_mail(first, second)
    assert shape(results) == [("thread", [9]), ("thread-2", [9])]
    assert results.builds[1].heading == "Subject: Re: numbers"
    (copies,) = results.oddities
    assert copies.text.startswith("9 records are copies of other records (line ")


def test_figures_without_intervals_are_quoted_too() -> None:
    table = (DATA / "bar-prefix.txt").read_text()
    quote = "".join(f"> {line}" for line in table.splitlines(keepends=True))
    results = read_mail(mail(table), mail(quote), mail(quote.replace("9.531", "9.532")))
    assert shape(results)[:2] == [("before", [10]), ("after", [10])]
    # What somebody has changed is no copy.
    assert [label for label, _ in shape(results)] == ["before", "after", "before#2"]


def test_a_heading_in_one_mail_is_not_about_the_next() -> None:
    results = read_mail(mail("After:\n"), mail(X86))
    assert [build.label for build in results.builds] == ["thread-2"]


def test_alternatives_and_forwarded_mails() -> None:
    it = mail(X86)
    it.add_alternative(f"<html><body><pre>{V7}</pre></body></html>", subtype="html")
    assert shape(read_mail(it)) == [("thread", [9])]
    only = EmailMessage()
    only["From"] = "somebody@example.org"
    only["Subject"] = "page"
    only.set_content(f"<p>a &gt; b</p><pre>{X86}</pre>", subtype="html")
    assert figures(read_mail(only)) == FIGURES
    outer = mail("see below\n")
    outer.add_attachment(mail(X86, "forwarded"))
    results = read_mail(outer)
    assert figures(results) == FIGURES
    assert results.builds[0].heading == "Subject: forwarded"


def test_a_line_that_begins_with_from_separates_nothing() -> None:
    body = "text\n\nFrom here on it is slower:\n\n" + X86 + "\n>From a quote 2024\n"
    assert figures(read_mail(mail(body, cte="8bit"))) == FIGURES


@pytest.mark.parametrize(
    "broken",
    [
        b"Content-Type: multipart/mixed\n",
        b"Content-Type: multipart/mixed; boundary=\n",
        b'Content-Type: text/plain; charset="\xff\xfe"\n',
        b"Content-Type: ;;;==\n",
        b"Content-Type: text/plain; charset*0*=utf-8''%ff\n",
        b"Content-Disposition: attachment; filename*=x''%\n",
        b"Content-Transfer-Encoding: nonsense\n",
        b"Subject: =?utf-8?b?////?=\n",
        b"Date: \n",
    ],
)
def test_broken_headers(broken: bytes) -> None:
    head = b"From: a@example.org\nSubject: x\n" + broken + b"\n"
    results = read_mail(head + X86.encode(), name="mail.eml")
    assert figures(results) == FIGURES


def test_a_mail_that_ends_in_the_middle() -> None:
    it = mail("text\n")
    it.add_attachment(X86, filename="before.log", cte="base64")
    raw = bytes(it)
    for end in range(len(raw) - 3000, len(raw), 97):
        try:
            results = read_mail(raw[:end], name="mail.eml")
        except ResultsError:
            continue
        assert figures(results).split(" ")[0] == "1/0.284"
    with pytest.raises(ResultsError, match="no results in 3 lines"):
        read_mail(b"From: a@example.org\nSubject: only a header\n\n", name="mail.eml")


def test_what_is_kept_of_attachments_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    it = mail(X86)
    it.add_attachment(V7, filename="big.log")
    monkeypatch.setattr(mails, "MAX_ATTACHMENT", len(V7) // 2)
    results = read_mail(it, name="mail.eml")
    assert shape(results) == [("mail", [9])]
    assert [oddity.text for oddity in results.oddities] == [
        "1 attachment too big, or too many: not read"
    ]
    monkeypatch.undo()
    monkeypatch.setattr(mails, "MAX_ATTACHMENTS", 0)
    assert shape(read_mail(it, name="mail.eml")) == [("mail", [9])]


def test_an_attachment_that_is_broken() -> None:
    it = mail(X86)
    packed = gzip.compress(V7.encode())
    it.add_attachment(packed[:-200], maintype="application", subtype="gzip", filename="a.gz")
    it.add_attachment(b"{not json", maintype="application", subtype="json", filename="a.json")
    results = read_mail(it, name="mail.eml")
    assert figures(results) == FIGURES
    said = {(oddity.file, oddity.code) for oddity in results.oddities}
    assert ("mail.eml!a.gz", "packed") in said
    assert ("mail.eml!a.json", "attachment") in said


@settings(max_examples=150)
@given(st.data())
def test_any_damage_is_one_line_or_results(data: st.DataObject) -> None:
    """Bytes cut out of, put into or repeated in an archive."""
    inner = mail(X86, cte="quoted-printable")
    inner.add_attachment(V7, filename="after.log", cte="base64")
    raw = bytearray(b"From x Thu Jan  1 00:00:00 1970\n" + bytes(inner))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(raw)))
        length = data.draw(st.integers(0, 200))
        piece = data.draw(
            st.sampled_from(
                [
                    b"",
                    b"\n\n",
                    b"--",
                    b"=\n",
                    b"\xff",
                    b"\0",
                    b"Content-Type: ",
                    raw[at : at + length],
                ]
            )
        )
        raw[at : at + data.draw(st.sampled_from([0, length]))] = piece
    try:
        read_mail(bytes(raw))
    except ResultsError as error:
        assert "\n" not in str(error)


def test_base64_lines_in_any_division() -> None:
    text = base64.b64encode(X86.encode())
    head = b"From: a@example.org\nSubject: x\nContent-Transfer-Encoding: base64\n\n"
    for width in (1, 3, 4, 57, 76, 10_000):
        body = b"\n".join(text[at : at + width] for at in range(0, len(text), width))
        assert figures(read_mail(head + body + b"\n", name="mail.eml")) == FIGURES


@pytest.mark.parametrize("path", sorted(DATA.glob("*.txt")), ids=lambda path: path.stem)
@pytest.mark.parametrize("coding", ["base64", "quoted-printable", "file"])
def test_every_input_is_the_same_in_a_mail(path: Path, coding: str) -> None:
    """Encoded, its lines are others: what is next to what goes by the text."""
    text = path.read_text()

    def everything(results: ResultSet) -> list[tuple[list[list[str]], list[str]]]:
        return [
            (
                [
                    [f"{r.key} {r.ns} {r.cycles} {r.pps} {r.events}" for r in run.records]
                    for run in it.runs
                ],
                sorted(it.machine),
            )
            for it in results.builds
        ]

    try:
        expected = everything(read(str(path)))
    except ResultsError:
        return
    if coding == "file":
        it = mail("see the attachment\n")
        it.add_attachment(text, filename=path.name, cte="base64")
    else:
        it = mail(text, cte=coding)
    assert everything(read_mail(it, name="mail.eml")) == expected


def test_a_sentence_that_ends_in_a_year_begins_no_mail() -> None:
    body = f"Before:\n{X86}\n\nFrom Mina's run in 2024\nAfter:\n{V7}"
    results = read_mail(mail(body), mail("nothing\n"))
    assert [label for label, _ in shape(results)] == ["Before", "After"]


def test_packed_json_packed_mails_and_coded_mails() -> None:
    it = mail("see below\n")
    document = jsonio.dumps(read(str(DATA / "script-summary.txt"))).encode()
    inner = bytes(mail(X86, "inner", cte="base64"))
    for name, data in (("own.json.gz", document), ("thread.mbox.gz", inner)):
        it.add_attachment(
            gzip.compress(data), maintype="application", subtype="gzip", filename=name
        )
    results = read_mail(it, name="mail.eml")
    assert sorted(label for label, _ in shape(results)) == ["After", "Before", "thread"]
    head = b"From: a@b\nSubject: x\nContent-Type: message/rfc822\n"
    head += b"Content-Transfer-Encoding: base64\n\n"
    assert figures(read_mail(head + base64.encodebytes(inner), name="mail.eml")) == FIGURES


def test_lines_of_a_page_end_at_breaks() -> None:
    head = b"From: a@b\nSubject: x\nContent-Type: text/html\n\n"
    line = "time_bench: Type:lock Per elem: 37 cycles(tsc) 10.431 ns (step:0)"
    for page in (
        f"<p>Before:<br>{line}<br>after<br/>x</p>",
        f"<div>Before:</div><div>{line}</div>",
    ):
        assert shape(read_mail(head + page.encode() + b"\n")) == [("Before", [1])]


def test_a_long_line_in_base64_takes_linear_time() -> None:
    data = b"x" * (1 << 20)
    head = b"From: a@b\nSubject: x\nContent-Transfer-Encoding: base64\n\n"
    with pytest.raises(ResultsError, match="no results"):
        read_mail(head + base64.encodebytes(data))


@pytest.mark.parametrize("charset", ["utf-16", "utf-16le", "utf-16be", "utf-32", "iso-2022-jp"])
@pytest.mark.parametrize("coding", ["base64", "quoted-printable", "8bit"])
def test_text_that_is_not_decoded_line_by_line(charset: str, coding: str) -> None:
    body = ("\u524d:\n\nAfter:\n" + X86).encode(charset)
    if coding == "base64":
        body = base64.encodebytes(body)
    elif coding == "quoted-printable":
        body = b"=\n".join(
            b"".join(b"=%02X" % byte for byte in body[at : at + 20])
            for at in range(0, len(body), 20)
        )
    head = (
        f"From: a@b\nSubject: x\nContent-Type: text/plain; charset={charset}\n"
        f"Content-Transfer-Encoding: {coding}\n\n"
    )
    results = read_mail(head.encode() + body)
    assert (shape(results), figures(results)) == ([("After", [9])], FIGURES)
    assert results.oddities == ()


@pytest.mark.parametrize("codec", ["utf-16", "utf-32", "utf-16-be", "utf-32-be"])
def test_a_file_with_a_byte_order_mark(codec: str) -> None:
    mark = b"" if codec in ("utf-16", "utf-32") else "\ufeff".encode(codec)
    data = mark + X86.replace("\n", "\r\n").encode(codec)
    document = jsonio.dumps(read(str(DATA / "script-summary.txt")))
    for packed in (data, gzip.compress(data)):
        results = read_stream(io.BytesIO(packed), "x.log")
        assert figures(results) == FIGURES
        assert results.sources[0].lines == X86.count("\n")
    both = read_stream(io.BytesIO(mark + document.encode(codec)), "x.json")
    assert [build.label for build in both.builds] == ["Before", "After"]
    it = mail("see the attachment\n")
    it.add_attachment(data, maintype="text", subtype="plain", filename="a.log")
    assert figures(read_mail(it)) == FIGURES
    cut = read_stream(io.BytesIO(data[:-1]), "x.log")  # in the middle of a letter
    assert figures(cut) == FIGURES


def test_blanks_that_do_not_break() -> None:
    line = "time_bench: Type:lock Per elem: 37 cycles(tsc) 10.431 ns (step:0)\n"
    heads = (
        "test                  before ns     after ns\nlock                  10.431        10.763\n"
    )
    for text in (line, f"> > {line}", heads, f"> {heads}".replace("\nl", "\n> l")):
        expected = [
            record.ns
            for build in read_stream(io.BytesIO(text.encode()), "a").builds
            for record in build.records
        ]
        assert expected
        hard = text.replace(" ", "\u00a0").encode()
        for raw in (hard, b"From: a@b\nSubject: x\n\n" + hard):
            results = read_stream(io.BytesIO(raw), "a")
            assert [r.ns for build in results.builds for r in build.records] == expected


def test_a_quoted_document_has_sections() -> None:
    line = "time_bench: Type:lock Per elem: 37 cycles(tsc) {} ns (step:0)\n"
    text = (
        "#+title: two machines\n\n* Intel, with a long headline\n\n" + line.format("10.431")
        + "  * an indented bullet is no headline\n" + line.format("10.432")
        + "** AMD, with a long headline\n\n" + line.format("10.433")
    )  # fmt: skip
    for quote in ("", "> ", "> > "):
        raw = "".join(f"{quote}{it}" for it in text.splitlines(keepends=True)).encode()
        found = [build.label for build in read_stream(io.BytesIO(raw), "a").builds]
        assert found == ["Intel, with a long headline", "AMD, with a long headline"]


def test_tags_that_span_lines() -> None:
    head = b"From: a@b\nSubject: x\nContent-Type: text/html\n\n"
    page = (
        "<p\nclass='a'>Before:<br\n/>time_bench: <span\n\nstyle='x:\ny'\n>Type:lock</span"
        "\n> Per elem: 37 <b>cycles(tsc)</b> 10.431 ns (step:0)</p\n>"
        "<pre>[    1.500000 &lt;    0.1>] time_bench: Type:x Per elem: 3 cycles(tsc) 1.500 ns"
        " (step:0)\n a < b\n</pre>"
    )
    results = read_mail(head + page.encode() + b"\n")
    assert (shape(results), figures(results)) == ([("Before", [2])], "37/10.431 3/1.500")
    source = results.builds[0].records[0].source
    assert source is not None and source.line == 7
    # A tag without an end takes no more than its share.
    page = "<a " + "x\n" * 10_000 + X86
    assert len(read_mail(head + page.encode()).builds[0].records) == 9


def test_a_page_in_another_alphabet() -> None:
    head = b"From: a@b\nSubject: x\nContent-Type: text/html; charset=utf-16\n"
    page = f"<pre>{X86}</pre>".encode("utf-16")
    coded = head + b"Content-Transfer-Encoding: base64\n\n" + base64.encodebytes(page)
    assert figures(read_mail(coded)) == FIGURES
