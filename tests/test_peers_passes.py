"""Where a pass of another optimizer makes a model smaller, ours is at least as small: one model for each pass."""

from __future__ import annotations

import pytest

import superopt
from tests.peer_cases import CASES, FAMILIES, NOT_TRIED, TABLE, Case, remaining
from tests.test_families import families

PASSES = {
    "onnxoptimizer": """adjust_add adjust_slice_and_matmul eliminate_common_subexpression
        eliminate_consecutive_idempotent_ops eliminate_deadend eliminate_duplicate_initializer eliminate_identity
        eliminate_if_with_const_cond eliminate_nop_cast eliminate_nop_concat eliminate_nop_dropout eliminate_nop_expand
        eliminate_nop_flatten eliminate_nop_monotone_argmax eliminate_nop_pad eliminate_nop_reshape eliminate_nop_split
        eliminate_nop_transpose eliminate_nop_with_unit eliminate_shape_gather eliminate_shape_op
        eliminate_slice_after_shape eliminate_unused_initializer extract_constant_to_initializer fuse_add_bias_into_conv
        fuse_bn_into_conv fuse_concat_into_reshape fuse_consecutive_concats fuse_consecutive_log_softmax
        fuse_consecutive_reduce_unsqueeze fuse_consecutive_slices fuse_consecutive_squeezes fuse_consecutive_transposes
        fuse_consecutive_unsqueezes fuse_matmul_add_bias_into_gemm fuse_pad_into_conv fuse_pad_into_pool fuse_qkv
        fuse_transpose_into_gemm lift_lexical_references nop rename_input_output replace_einsum_with_matmul
        rewrite_input_dtype rewrite_where set_unique_name_for_nodes split_init split_predict""",
    "onnxslim": """EliminationConcat EliminationReshape EliminationReshapeAs EliminationSlice EliminationTranspose
        EliminationTransposeAsReshape EliminationTransposeViewTranspose EliminationUnsqueeze FusionConcatReshape
        FusionConvAdd FusionConvBN FusionConvMul FusionGelu FusionGemm FusionGemmAdd FusionGemmMul FusionPadConv
        FusionReduce dead_node_elimination subexpression_elimination weight_tying""",
    "onnxscript": """add_0_rule affine_conv_fusion_rule cast_cast_rule cast_constant_of_shape_rule
        cast_constant_of_shape_without_value_rule collapse_slice2_rule collapse_slice_rule conv_affine_fusion_rule
        div_by_1_rule dropout_inference_rule dropout_zero_rule expand_before_binary_op_rules flatten_to_reshape_rule
        fuse_batchnorm_into_conv_rule fuse_batchnorm_into_conv_transpose_rule fuse_batchnorm_into_gemm_rule
        fuse_hardswish_rules fuse_pad_into_conv_integer_rule fuse_pad_into_conv_rule gemm_to_matmul_add_rule gqa_rules
        layer_normalization_rules materialize_reshape_shape_rule matmul_add_to_gemm_rule max_max_rule max_min_rule
        min_max_rule min_min_rule mul_by_1_rule no_op_cast_rule no_op_dynamic_scatter_nd_rule no_op_expand_rule
        no_op_static_scatter_nd_rule no_op_transpose_rule normalize_pad_format_conv_integer_rule
        normalize_pad_format_conv_rule one_reshape_matmul_reshape_rule remove_optional_bias_from_conv_rule
        remove_optional_bias_from_conv_transpose_rule remove_optional_bias_from_gemm_rule
        remove_optional_bias_from_qlinear_conv_rule reshape_reshape_rule rms_normalization_rules rotary_embedding_rules
        slice_split_rule squeeze_reshape_1d_rule sub_0_rule successive_clip_relu_rule successive_clip_rule
        successive_relu_clip_rule successive_relu_rule transpose_a_matmul_add_to_gemm_rule
        transpose_ab_matmul_add_to_gemm_rule transpose_b_matmul_add_to_gemm_rule transpose_transpose_rule
        two_reshapes_matmul_reshape_rule unsqueeze_unsqueeze_rule""",
    "onnxruntime": """CastChainElimination CastElimination ClipQuantFusion CommonSubexpressionElimination
        ConstantFolding
        ConstantSharing ConvAddFusion ConvBNFusion ConvMulFusion DivMulFusion DoubleQDQPairsRemover
        EliminateDropout EliminateIdentity EliminateSlice EnsureUniqueDQForNodeUnit ExpandElimination
        FreeDimensionOverrideTransformer FuseReluClip GatherToSliceFusion GeluFusion GemmSumFusion
        GemmTransposeFusion LabelEncoderFusion LayerNormFusion MatMulAddFusion MatmulBNFusion
        NoopElimination NotWhereFusion PadFusion PreShapeNodeElimination QDQPropagationTransformer
        ReluQuantFusion ReshapeFusion RocmBlasAltImpl TransposeOptimizer UnsqueezeElimination
        WeightBiasQuantization""",
}
"""What the peers say that they have: onnxoptimizer's passes, onnxslim's patterns, onnxscript's rules, and what
onnxruntime runs at its basic level (and two that it runs above)."""


def left_by_us(case: Case) -> int:
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in case.options.items()}
    result = superopt.optimize(case.model(), select="modelled", **options)
    assert result.report["verified"]
    return remaining(result.model)


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_no_more_is_left_than_a_peer_leaves(case: Case) -> None:
    left = left_by_us(case)
    if case.ours is None:
        assert left <= case.left
    else:
        assert case.left < case.ours == left, "what is said of a pass that does more is what is left"


@pytest.mark.parametrize("case", FAMILIES, ids=[case.id for case in FAMILIES])
def test_a_family_leaves_what_it_should(case: Case) -> None:
    assert left_by_us(case) <= case.left


@pytest.mark.parametrize("case", [*CASES, *FAMILIES], ids=[case.id for case in (*CASES, *FAMILIES)])
def test_there_is_something_to_do(case: Case) -> None:
    assert len(case.model().graph.node) > case.left or case.passed in SAME_COUNT


SAME_COUNT = {
    "eliminate_if_with_const_cond", "adjust_slice_and_matmul", "adjust_add", "replace_einsum_with_matmul",
    "flatten_to_reshape_rule", "normalize_pad_format_conv_rule", "UnsqueezeElimination",
    "remove_optional_bias_from_conv_rule", "remove_optional_bias_from_conv_transpose_rule",
    "remove_optional_bias_from_gemm_rule", "remove_optional_bias_from_qlinear_conv_rule",
}  # fmt: skip
"""Passes that leave as many nodes as there were, or more."""


@pytest.mark.parametrize("peer", PASSES)
def test_every_pass_is_tried_or_said_not_to_be(peer: str) -> None:
    tried = {case.passed for case in CASES if case.peer == peer}
    assert not tried & set(NOT_TRIED[peer])
    assert tried | set(NOT_TRIED[peer]) == set(PASSES[peer].split())
    assert all(NOT_TRIED[peer].values())


def test_options_and_what_is_less_have_a_reason() -> None:
    assert all(entry.get("because") for entry in TABLE["case"] if "with" in entry or "ours" in entry)


def test_families_of_rules_name_passes_of_onnxoptimizer_that_there_are() -> None:
    named = {name for entry in families().values() for name in entry["onnxoptimizer"]}
    assert named <= set(PASSES["onnxoptimizer"].split())
