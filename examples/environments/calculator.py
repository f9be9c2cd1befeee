"""Products with a calculator: the model learns to call it.

A turn may contain `<tool_call>23*47</tool_call>`, or the JSON of Hermes and Qwen,
`<tool_call>{"name": "calculate", "arguments": {"expression": "23*47"}}</tool_call>`. A turn
without a call is the answer, in `\\boxed{}`.
"""

import ast
import json
import operator
import re

from grpo_trainer.environments.sdk import Environment, Observation, Task, tool_schema

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.USub: operator.neg,
}
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
BOX = re.compile(r"\\boxed\{([^{}]*)\}")


def calculate(expression: str) -> int:
    """Compute an expression of integers with +, - and *."""

    def value(node: ast.AST) -> int:
        match node:
            case ast.Expression(body=body):
                return value(body)
            case ast.Constant(value=int() as number):
                return number
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(operand))
        raise ValueError("must have integers, +, - and * only")

    return value(ast.parse(expression[:100].strip(), mode="eval"))


class Calculator(Environment):
    """A right answer earns 1."""

    def reset(self, row, seed):
        self.answer, self.calls = str(row["gt_answer"]), 0
        return Task(row["messages"], [tool_schema(calculate)])

    def step(self, completion):
        call = CALL.search(completion)
        if call is None:
            return self.final(completion)
        self.calls += 1
        return Observation([{"role": "tool", "name": "calculate", "content": answer(call[1])}])

    def final(self, completion):
        boxes = BOX.findall(completion)
        right = float(bool(boxes) and boxes[-1].strip() == self.answer)
        metrics = {"accuracy": right, "format_accuracy": float(bool(boxes)), "calls": self.calls}
        return Observation(done=True, reward=right, metrics=metrics)


class NoCalculator(Calculator):
    """The control: every turn is an answer."""

    def step(self, completion):
        return self.final(completion)


def answer(call: str) -> str:
    """The answer to a call; an error is text for the model, too."""
    try:
        text = json.loads(call)["arguments"]["expression"] if call.startswith("{") else call
        return str(calculate(text))
    except (ArithmeticError, KeyError, RecursionError, SyntaxError, TypeError, ValueError) as error:
        return f"error: {error}"
