"""What does not arrive on its way through a network, as measured: the signal, the gradient, or the
differences between inputs. `initialize` and `audit` both warn of it."""

import math
from collections.abc import Mapping, Sequence
from itertools import chain

from rectifiers.initialization.distributions import Trace
from rectifiers.initialization.flow import LayerFlow
from rectifiers.initialization.report import ALIKE_IN_DATA, EXPLODED, VANISHED, Lost


def signal_lost(trace: Trace, *, may_be_zero: bool = False) -> Lost | None:
    """Find the first layer whose signal is not finite, or far too large or small, at its first or
    last use.

    Both what it reads and what it answers have to be: a normalisation may read anything, and a
    weight may make up for what it reads. Of a last layer too large an answer is enough, where the
    outputs of the network are too large as well.

    may_be_zero: whether zeros are meant, as those of a branch that training opens."""
    inner = set(chain.from_iterable(call.reads.behind for call in trace.calls.values()))
    is_output_large = max(trace.outputs, default=0.0) > EXPLODED
    for name, uses in trace.sizes.items():
        is_last_large = is_output_large and name not in inner
        last_use = len(uses) - 1
        for use in sorted({0, last_use}):
            reads, answer = uses[use]
            if not math.isfinite(answer):
                return Lost("not finite", f"the responses of {name} are not finite", name)

            # before its last use a layer may read a state that starts at 0
            is_start = use < last_use or (use == 0 and _reads_zeros_of_data(trace, name))
            is_meant = 0 in (reads, answer) and (may_be_zero or is_start)
            is_small = max(reads, answer) < VANISHED and not is_meant
            is_large = answer > EXPLODED and (reads > EXPLODED or is_last_large)
            if is_small or is_large:
                word = "vanishes" if is_small else "explodes"
                place = " at its last use" if use else f", which reads {trace.calls[name].reads},"
                sentence = (
                    f"the signal {word}: {name}{place} turns E[x²] = {reads:.3g} into E[y²] = "
                    f"{answer:.3g}"
                )
                return Lost("signal", sentence, name, is_later=use > 0)
    return outputs_lost(trace)


def outputs_lost(trace: Trace) -> Lost | None:
    """Find outputs that hold NaN, or nothing that is finite, behind responses that are: a single
    infinite number may be a mask."""
    if not any(map(math.isnan, trace.outputs)):
        return None
    sentence = "the outputs are not finite, though the responses of all layers are"
    return Lost("not finite", sentence, next(reversed(trace.calls), ""))


def _reads_zeros_of_data(trace: Trace, name: str) -> bool:
    """Return whether a layer, and all behind it, read zeros: the signal was 0 before them."""
    names = (name, *trace.calls[name].reads.behind)
    return all(trace.calls[other].reads.second == 0 for other in names)


def fading(layers: Mapping[str, LayerFlow]) -> dict[str, LayerFlow]:
    """Return the layers that have a gradient, where it vanishes on its way to the first of them."""
    alive = {name: x for name, x in layers.items() if x.gradient * x.second}
    sizes = [x.gradient * x.second for x in alive.values()]
    return alive if sizes and sizes[0] < VANISHED * sizes[-1] else {}


def to_judge(flows: Sequence[Mapping[str, LayerFlow]]) -> Mapping[str, LayerFlow]:
    """Return the layers whose gradients say whether they are lost: those that fade, or those of the
    first run in which first and last layer have a gradient, which they have after a step where a
    gate or an end starts at 0. None where they never have.

    flows: the layers of the model, and after a step of SGD each."""
    if faint := fading(flows[0]):
        return faint
    for layers in flows:
        gradients = [x.gradient for x in layers.values() if x.is_reached]
        if gradients and gradients[0] and gradients[-1]:
            return layers
    return {}


def gradient_lost(layers: Mapping[str, LayerFlow]) -> Lost | None:
    """Compare the gradient of the first layer with that of the last one.

    Each is in units of the layer's responses, gradient x E[y^2]: a normalisation behind the layer
    divides one and multiplies the other. Layers whose responses are 0 have no such units, and those
    that the outputs do not depend on have no gradient."""
    reached = {name: x for name, x in layers.items() if x.is_reached}
    for name, x in reached.items():
        if not math.isfinite(x.gradient):
            return Lost("not finite", f"the gradient of {name} is not finite", name)
    if reached and not any(x.gradient for x in reached.values()):
        sentence = "the gradient vanishes: it is 0 at every layer"
        return Lost("gradient", sentence, next(iter(reached)))

    sizes = [(name, x.gradient * x.second) for name, x in reached.items() if x.second]
    if not sizes or not sizes[-1][1]:
        return None
    (first, size), (last, reference) = sizes[0], sizes[-1]
    if VANISHED <= size / reference <= EXPLODED:
        return None
    word = "explodes" if size > reference else "vanishes"
    sentence = (
        f"the gradient {word}: the sum of its squares at {first} is {size / reference:.3g} times "
        f"that at {last}, each in units of the responses"
    )
    return Lost("gradient", sentence, first)


def inputs_alike(layers: Mapping[str, LayerFlow], trace: Trace) -> Lost | None:
    """Find responses to different inputs that become alike on their way: at the last layer that
    reads inputs which differ, or has a layer behind it that does. What else is alike is so in the
    data, or is a constant beside them.

    Near a correlation of 1 each layer multiplies 1 - c by the factor of the gradient's mean square
    (Schoenholz et al. 2017), so that both have one limit."""
    reached = {name: x for name, x in layers.items() if x.is_reached} or layers
    different = {
        name: x.correlation_in
        for name, x in reached.items()
        if x.correlation_in is not None and 1 - x.correlation_in >= ALIKE_IN_DATA
    }
    for name, x in reversed(list(reached.items())):
        way = {name, *(trace.calls[name].reads.behind if name in trace.calls else ())}
        at_first = next((c for source, c in different.items() if source in way), None)
        if x.correlation is None or at_first is None:
            continue
        if 1 - x.correlation > VANISHED * (1 - at_first):
            return None
        sentence = (
            f"inputs become alike: two of them have a correlation of {at_first:.3g}, and the "
            f"responses of {name} to them one of {x.correlation:.9g}"
        )
        return Lost("inputs", sentence, name)
    return None
