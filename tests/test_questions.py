"""Each of the ten questions of docs/questions.md has its answer, in a made-up history of today."""

from __future__ import annotations

from pathlib import Path

import demo_history
import pytest
from bench import browser_here, questions


def test_each_question_is_answered(tmp_path: Path):
    if browser_here() is None:
        pytest.skip("no chromium: apt-get install chromium-headless-shell")
    demo_history.write(tmp_path)
    answers = {question: text for question, _, text in questions.answers(tmp_path)}
    assert [*answers] == questions.QUESTIONS
    assert all(answers.values())
