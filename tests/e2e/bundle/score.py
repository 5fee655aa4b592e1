"""A small eval bundle for end-to-end tests; `pause` in a prompt's row makes it slow."""

import json
import time


def evaluate(suite, model, report):
    rows = [json.loads(line) for line in (suite / "prompts.jsonl").read_text().splitlines()]
    replies = []
    for done, row in enumerate(rows):
        report("ask", done, len(rows))
        time.sleep(row.get("pause", 0))
        replies.append(model.chat([{"role": "user", "content": row["prompt"]}], max_tokens=4))
    report("ask", len(rows), len(rows))
    answers = [row["answer"] for row in rows]
    return {
        "metrics": {
            "accuracy": ratio(replies, answers),
            "baseline": ratio(["7"] * len(rows), answers),
        },
        "controls": {
            "oracle": ratio(answers, answers)["value"],
            "null_answer": ratio([""] * len(rows), answers)["value"],
        },
        "completed": len(rows),
        "failed": 0,
    }


def ratio(replies, answers):
    right = sum(reply == answer for reply, answer in zip(replies, answers, strict=True))
    share = round(right / len(answers), 4)
    text = f"{share:.4f}".rstrip("0").rstrip(".")
    return {"value": text or "0", "n": len(answers)}
