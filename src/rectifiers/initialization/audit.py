"""`audit`: what the start of a network is, and what is at fault with it. Changes nothing."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from torch import Tensor, nn

from rectifiers.initialization import findings as find
from rectifiers.initialization import tracing
from rectifiers.initialization.distributions import LayerCall, Trace
from rectifiers.initialization.example import arguments, cannot_run, check
from rectifiers.initialization.findings import FUSED, Finding, Severity, TensorAudit
from rectifiers.initialization.flow import Flow, measure
from rectifiers.initialization.notes import notes
from rectifiers.initialization.report import Report, Row
from rectifiers.initialization.steps import after_steps, copied
from rectifiers.initialization.weights import Fans, look, usual
from rectifiers.runtime.errors import InputError


@dataclass(frozen=True)
class AuditReport(Report):
    """The report of `audit`. It prints as a table, and shows as one in a notebook.

    model: the name of the model's class.
    tensors: the weights of layers, in the order of their use, and then the other tensors of two or
        more dimensions.
    vectors: what scales and biases hold, in words, each with how many there are.
    findings: errors, then warnings, then notes.
    """

    model: str
    tensors: tuple[TensorAudit, ...]
    vectors: dict[str, int]
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[str, ...]:
        """What cannot be trained, each a sentence."""
        return self._sentences("error")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What leaves the limits, each a sentence with a remedy."""
        return self._sentences("warning")

    def _sentences(self, severity: Severity) -> tuple[str, ...]:
        return tuple(x.sentence for x in self.findings if x.severity == severity)

    def check(self, *, strict: bool = False) -> "AuditReport":
        """Return the report if it has no errors, and with `strict` no warnings.

        Raises:
            InputError: if there are; its message contains all of them.
        """
        sentences = (*self.errors, *(self.warnings if strict else ()))
        if sentences:
            raise InputError("; ".join(sentences))
        return self

    def title(self) -> str:
        counts = [(len(self._sentences(severity)), severity) for severity in get_args(Severity)]
        words = (f"{count} {severity}{'' if count == 1 else 's'}" for count, severity in counts)
        return f"Audit of {self.model}: {', '.join(words)}."

    def cells(self) -> list[Row]:
        columns = ("tensor", "shape", "reads", "std", "needed", "looks like", "E[y²]")
        rows: list[Row] = [(*columns, "correlation", "gradient")]
        for row in self.tensors:
            shape = "x".join(map(str, row.shape))
            found = (row.second, row.correlation, row.gradient)
            numbers = ("" if x is None else f"{x:.3g}" for x in found)
            needed = "" if row.needed is None else f"{row.needed:.3g}"
            std = f"{row.looks.std:.3g}"
            rows.append((row.tensor, shape, row.reads, std, needed, row.looks.rule, *numbers))
        return rows

    def notes(self) -> list[str]:
        vectors = [f"{count} of {words}" for words, count in self.vectors.items()]
        return [
            *(["scales and biases: " + "; ".join(vectors)] if vectors else []),
            *map(str, self.findings),
        ]

    __repr__ = Report.__str__


def audit(model: nn.Module, example_input: Any) -> AuditReport:
    """Say of every weight of `model` what it looks like, and what is at fault with the start.

    The model is run forward and backward on the example, and changed in nothing. Severity follows
    the measured effect. Errors: something is not finite, or no gradient reaches a parameter, even
    after steps of SGD on a copy, so that zeros at the end of a branch are none. Warnings: the
    signal at a layer, the gradient of the first layer in units of the last one's, or what differs
    between the responses to two inputs leaves the limits 1e-7 and 1e7. Notes: what is inferred from
    a std. Of weights that look trained, only errors are reported.

    example_input: as for `initialize`; four examples or more, for normalisation over two says
        little.

    Raises:
        InputError: where the model cannot be run on the example, or not differentiated or copied.

    Examples:
        >>> model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        >>> report = audit(model, (8, 64)).check()
        >>> report.tensors[0].looks.rule
        'torch default, uniform'
        >>> nn.init.constant_(model[0].bias, -100.0).shape
        torch.Size([256])
        >>> audit(model, (8, 64)).errors[0].partition(":")[0]
        '0.weight, 0.bias, 2.weight'
    """
    args, kwargs = arguments(model, example_input)
    name = type(model).__name__
    check(model, (*args, *kwargs.values()))
    if broken := tuple(find.not_finite(model)):
        return AuditReport(name, tuple(_others(model, set())), _vectors(model), broken)
    trace = tracing.run(copied(model), args, kwargs=kwargs, empirical=True)
    try:
        start = measure(copied(model), args, kwargs)
        flows = [start, *after_steps(model, start, args, kwargs)]
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{name} cannot be differentiated ({type(error).__name__}: {error}); give the model "
            "without what hinders it, such as checkpointing"
        ) from error
    rows = [_row(trace, call, flows) for call in trace.calls.values()]
    rows += _others(model, {row.tensor.partition("[")[0] for row in rows})
    all_looks = usual([row.looks for row in rows])
    rows = [replace(row, looks=looks) for row, looks in zip(rows, all_looks, strict=True)]
    statistics = (x for n, x in model.named_buffers() if n.endswith("num_batches_tracked"))
    read = flows[0].used | flows[0].idle
    learns = (name for name, x in model.named_parameters() if x.requires_grad and x.numel())
    unread = [name for name in learns if name not in read]
    findings = list(find.errors(trace, flows))
    if (training := find.trained(rows, any(map(bool, statistics)))) is not None:
        findings.append(training)
    elif not findings:
        findings += find.warnings(model, trace, flows)
    if training is None:
        findings += [*find.states(flows[-1]), *notes(model, rows, flows[-1])]
    if unread:
        findings.append(
            Finding("note", f"{find.named(unread)}: not read in this run", tuple(unread))
        )
    return AuditReport(name, tuple(rows), _vectors(model), tuple(findings))


def dead_units(model: nn.Module, batches: Iterable[Any]) -> dict[str, float]:
    """Return by layer the share of its units that get no gradient on any example of any batch.

    A ReLU's unit is dead where all its responses are negative, at every position; a unit whose
    outgoing weights are 0 is dead, too. The derivatives are those of a random combination of all
    outputs. A layer to which no row comes, as to an expert that is never chosen, is left out.
    Nothing of the model changes.

    batches: each as the example of `initialize`, such as a DataLoader.

    Raises:
        InputError: where the model cannot be run on a batch, or there is none.

    Examples:
        >>> model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> _ = nn.init.constant_(model[0].bias[:1].detach(), -100.0)
        >>> dead_units(model, [torch.randn(64, 8) for _ in range(4)])
        {'0.weight': 0.25, '2.weight': 0.0}
    """
    alive: dict[str, Tensor] = {}
    for batch in batches:
        args, kwargs = arguments(model, batch)
        check(model, (*args, *kwargs.values()))
        copy = copied(model)
        try:
            flow = measure(copy, args, kwargs)
        except InputError:
            raise
        except Exception as error:
            raise cannot_run(model, args, kwargs, error) from error
        for name, layer in flow.layers.items():
            if layer.alive is not None:
                alive[name] = layer.alive | alive.get(name, torch.zeros_like(layer.alive))
    if not alive:
        raise InputError("batches holds no batch on which a layer gets a gradient; give one")
    return {name: float((~units).double().mean()) for name, units in alive.items()}


def _row(trace: Trace, call: LayerCall, flows: list[Flow]) -> TensorAudit:
    """Return the row of a layer. The gradient is of the first run in which there is one."""
    seen = [flow.layers[call.name] for flow in flows if call.name in flow.layers]
    sizes = trace.sizes.get(call.name)
    second_in = sizes[0][0] if sizes else call.reads.second
    size = call.fan_in * second_in
    return TensorAudit(
        tensor=call.name,
        shape=tuple(call.weight.shape),
        looks=look(call.weight, _fans(call)),
        reads=str(call.reads),
        fan_in=call.fan_in,
        needed=math.sqrt(trace.share(call.name) / size) if 0 < size < math.inf else None,
        second_in=second_in,
        second=seen[0].second if seen else trace.responses.get(call.name, (0.0, None))[1],
        correlation=seen[0].correlation if seen else None,
        gradient=next((x.gradient for x in seen if x.gradient), 0.0) if seen else None,
        is_end=call.name in trace.branches,
        is_output=call.name not in trace.feeds,
    )


def _fans(call: LayerCall) -> Fans:
    """Return the true fans of a layer, and those that nn.init reads from its weight."""
    shape = call.weight.shape
    window = math.prod(shape[2:])
    read_in, read_out = shape[1] * window, shape[0] * window
    true_in, true_out = call.fan_in, call.fan_out
    if "[" in call.name:  # of nn.MultiheadAttention
        read_out, cause = 3 * read_out, "q, k and v lie in one weight, and are three layers"
    elif len(shape) == 2 and shape[0] == 3 * shape[1] and FUSED.search(call.name):
        true_out, cause = true_out // 3, "q, k and v lie in one weight, and are three layers"
    elif read_in == true_in:
        cause = "the layer is grouped, and an input reaches the responses of its group alone"
    elif window > 1 or len(shape) > 2:
        cause = "the layer is transposed, and nn.init reads its fans the other way round"
    else:
        cause = "the weight is [inputs, outputs], and nn.init reads its fans the other way round"
    return Fans(true_in, true_out, read_in, read_out, cause)


def _others(model: nn.Module, layers: set[str]) -> list[TensorAudit]:
    """Return the rows of tensors of two or more dimensions that are no layer's weight."""
    return [
        TensorAudit(name, tuple(x.shape), look(x, None))
        for name, x in model.named_parameters()
        if x.dim() > 1 and name not in layers
    ]


def _vectors(model: nn.Module) -> dict[str, int]:
    """Count what scales, biases and other vectors hold."""
    kinds = ((re.sub(r".*\.", "", name), x) for name, x in model.named_parameters() if x.dim() <= 1)
    return dict(Counter(f"{kind} ({_in_short(x)})" for kind, x in kinds))


def _in_short(x: Tensor) -> str:
    looks = look(x, None)
    return looks.rule if looks.family in ("constant", "") else "varied"
