"""TRL's GRPOTrainer on the quickstart's task, in its own environment.

    .venv-trl/bin/python benchmarks/trl_run.py < task.json

Reads the task, trains, and prints one line of JSON. Nothing of this project is imported.
"""

import json
import os
import re
import sys
import tempfile
import time
from typing import Any

ANSWER = re.compile(r"\\boxed\{([^{}]*)\}")


def right(completion: str, answer: str) -> bool:
    """Whether the last boxed number is the reference answer, a number in the built-in data."""
    found = ANSWER.findall(completion)
    return bool(found) and found[-1].strip() == answer


def main() -> None:
    task: dict[str, Any] = json.load(sys.stdin)
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    rewards: list[float] = []

    def reward(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        texts = [c[0]["content"] for c in completions]
        values = [10.0 * right(text, a) for text, a in zip(texts, answer, strict=True)]
        rewards.append(sum(values) / len(values))
        return values

    class Clock(TrainerCallback):  # type: ignore[misc]
        began = 0.0
        ended = 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.perf_counter()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.ended = time.perf_counter()

    clock = Clock()
    samples = task["prompts"] * task["generations"]
    rows = [
        {"prompt": [{"role": "user", "content": r["question"]}], "answer": r["answer"]}
        for r in task["rows"]
    ]
    with tempfile.TemporaryDirectory() as directory:
        arguments = GRPOConfig(
            output_dir=directory,
            max_steps=task["steps"],
            per_device_train_batch_size=samples,
            num_generations=task["generations"],
            max_completion_length=task["tokens"],
            learning_rate=task["learning_rate"],
            lr_scheduler_type="cosine",
            beta=0.0,
            temperature=1.0,
            epsilon=0.2,
            loss_type="grpo",
            max_grad_norm=1.0,
            weight_decay=0.0,
            seed=task["seed"],
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(task["model"], dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(task["model"]),
            reward_funcs=reward,
            args=arguments,
            train_dataset=Dataset.from_list(rows),
            callbacks=[clock],
        )
        trainer.train()
    seconds = clock.ended - clock.began
    last = rewards[-task["last_steps"] :]
    result = {
        "samples_per_second": task["steps"] * samples / seconds,
        "reward": sum(last) / len(last),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
