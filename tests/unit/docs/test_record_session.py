"""Recording a page again: commands are run in order, and only their outputs change."""

import record_session
from record_session import PAGE, recorded

SESSION = """# A session

```console
$ helm install x
...

$ kubectl get grpo
NAME   STEP

old    1
```

<!-- until: test -f step -->

Text with `$ code`.

```console
$ kubectl delete grpo x
```
"""


def test_outputs_are_replaced_but_those_left_out_and_the_text_around_them():
    page = recorded(SESSION, lambda command: f"output of {command}\n", lambda condition: None)
    assert page == SESSION.replace("NAME   STEP\n\nold    1", "output of kubectl get grpo").replace(
        "delete grpo x\n", "delete grpo x\noutput of kubectl delete grpo x\n"
    )


def test_commands_and_conditions_follow_each_other_in_the_order_of_the_page():
    done: list[str] = []
    recorded(SESSION, lambda command: done.append(command) or "", done.append)
    assert done == ["kubectl get grpo", "test -f step", "kubectl delete grpo x"]


def test_the_page_is_unchanged_where_every_output_is_the_same():
    text = PAGE.read_text()
    pieces = [
        piece.removesuffix("```").strip()
        for block in record_session._PARTS.findall(text)
        for piece in record_session._COMMAND.split(block)[2::2]
    ]
    outputs = iter([piece for piece in pieces if piece != "..."])
    assert recorded(text, lambda command: next(outputs), lambda condition: None) == text
