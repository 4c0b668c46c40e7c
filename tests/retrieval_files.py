"""Generated files in the formats of the retrieval benchmarks."""

from __future__ import annotations

from typing import Any


def locomo_sample() -> dict[str, Any]:
    """A conversation of two sessions and five questions, of which two cannot be scored."""

    def turn(number: str, speaker: str, text: str, **more: str) -> dict[str, str]:
        return {"speaker": speaker, "dia_id": number, "text": text, **more}

    return {
        "sample_id": "made-up",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Ben",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                turn("D1:1", "Ann", "I drink jasmine tea every morning."),
                turn("D1:2", "Ben", "I would rather have an espresso."),
                turn("D1:3", "Ann", "Look at this!", blip_caption="a photo of a green kayak"),
                turn("D1:4", "Ben", "Lovely colour."),
            ],
            "session_2_date_time": "12:09 am on 13 September, 2023",
            "session_2": [
                turn("D2:1", "Ann", "My sister Clara moved to Lisbon."),
                turn("D2:2", "Ben", "Mine stayed in Oslo and plays the cello."),
                turn("D2:3", "Ann", "We fly there in spring."),
                turn("D2:4", "Ben", "Enjoy it."),
            ],
            "session_3_date_time": "9:00 am on 1 October, 2023",
        },
        "qa": [
            {"question": "Which tea does Ann drink?", "evidence": ["D1:1"], "category": 4},
            {"question": "Who shared a kayak photo?", "evidence": ["D1:3"], "category": 4},
            {
                "question": "In which cities, Lisbon or Oslo, do the sisters live?",
                "evidence": ["D2:1; D2:2"],
                "category": 1,
            },
            {"question": "Who won?", "evidence": ["D9:9", "D"], "category": 5},
            {"question": "Who lost?", "evidence": [], "category": 5},
        ],
    }


def longmemeval_sample(question_id: str = "q1", **changes: Any) -> dict[str, Any]:
    """A question on four sessions; the second is listed again, the last has its mark on no user turn."""

    def said(role: str, content: str, *, has_answer: bool = False) -> dict[str, Any]:
        return {"role": role, "content": content, "has_answer": has_answer}

    recipe = [said("user", "Do you have a recipe for lentil soup?"), said("assistant", "Boil the lentils.")]
    return {
        "question_id": question_id,
        "question_type": "single-session-user",
        "question": "Which violin teacher did I choose?",
        "question_date": "2023/06/03 (Sat) 15:47",
        "haystack_dates": [
            "2023/04/20 (Thu) 05:18",
            "2023/04/24 (Mon) 18:41",
            "2023/05/02 (Tue) 08:00",
            "2023/05/25 (Thu) 05:27",
        ],
        "haystack_session_ids": ["answer_ab_1", "chat_7", "chat_7", "answer_ab_2"],
        "haystack_sessions": [
            [
                said("user", "I want to play music again."),
                said("assistant", "Which instrument?"),
                said("user", "I chose Mrs. Rossi as my violin teacher.", has_answer=True),
            ],
            recipe,
            recipe,
            [said("user", "Where do I buy strings?"), said("assistant", "In town.", has_answer=True)],
        ],
        "answer_session_ids": ["answer_ab_1", "answer_ab_2"],
        **changes,
    }
