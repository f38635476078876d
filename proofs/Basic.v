(* The hypotheses of Setwise.v can be met: basic composition, from end to end.
   dptopk.accounting, bound "basic" (Murtagh-Vadhan 2016, Theorem 1.2) *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From dptopk Require Import Game Rounds Setwise.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.
Section Basic.
Variable R : realFieldType.
(* h(u) = max(0, 1 - u / product of the e^epsilon). *)
Definition product (E : seq (cost R)) : R := \prod_(c <- E) c.2.
Definition hb E u : R := Num.max 0 (1 - u / product E).
Definition okb (E : seq (cost R)) : Prop := all (fun c : cost R => 1 < c.2) E.
Lemma product_ge1 E : okb E -> 1 <= product E.
Proof.
elim: E => [|c E IH] /=; rewrite /product ?big_nil // big_cons => /andP[c1 oE].
by rewrite mulr_ege1 ?(ltW c1) // IH.
Qed.
Lemma product_rem E c : c \in E -> product E = c.2 * product (rem c E).
Proof. by move=> cE; rewrite /product (perm_big _ (perm_to_rem cE)) big_cons. Qed.

(* A convex non-increasing max of 0 and 1 - u/k. *)
Lemma hinge_convex (k : R) : 0 < k -> convex (fun u : R => Num.max 0 (1 - u / k)).
Proof.
move=> k0 a b x y a0 b0 ab x0 y0.
have kn : k != 0 by rewrite gt_eqF.
rewrite le_maxl; apply/andP; split.
  by rewrite addr_ge0 // mulr_ge0 // le_maxr lexx.
have -> : 1 - (a * x + b * y) / k = a * (1 - x / k) + b * (1 - y / k).
  by rewrite -{1}ab; field; rewrite ?kn.
by apply: ler_add; apply: ler_wpmul2l => //; rewrite le_maxr lexx orbT.
Qed.
Lemma hinge_dec (k : R) : 0 < k -> decreasing (fun u : R => Num.max 0 (1 - u / k)).
Proof.
move=> k0 x y x0 xy; rewrite le_maxl !le_maxr lexx /=; apply/orP; right.
by rewrite ler_sub // ler_pmul2r ?invr_gt0.
Qed.

(* If w1 + w2 = 1 and both ends lie right of u / r, the chord of the hinge lies below the wider hinge. *)
Lemma hinge_chord (k w1 w2 x1 x2 v : R) :
  0 < k -> 0 <= w1 -> 0 <= w2 -> w1 + w2 = 1 -> v <= x1 -> v <= x2 ->
  w1 * Num.max 0 (1 - x1 / k) + w2 * Num.max 0 (1 - x2 / k) <= Num.max 0 (1 - v / k).
Proof.
move=> k0 w10 w20 w12 v1 v2.
have m x : v <= x -> Num.max 0 (1 - x / k) <= Num.max 0 (1 - v / k).
  move=> vx; rewrite le_maxl !le_maxr lexx /=; apply/orP; right.
  by rewrite ler_sub // ler_pmul2r ?invr_gt0.
have e M : M = w1 * M + w2 * M by rewrite -mulrDl w12 mul1r.
rewrite [X in _ <= X]e.
by apply: ler_add; apply: ler_wpmul2l => //; apply: m.
Qed.

Lemma basic_profiles : profiles (@left_over R) (@without R) okb hb.
Proof.
have t0 F : okb F -> 0 < product F by move=> /product_ge1; apply: lt_le_trans.
have or F c : okb F -> c \in F -> okb (rem c F).
  by move=> /allP oF cF; apply/allP => x /mem_rem xF; apply: oF.
split; first exact: or.
- by move=> F c /allP oF cF; apply: oF.
- by move=> F oF; apply: hinge_convex; apply: t0.
- by move=> F oF; apply: hinge_dec; apply: t0.
- by move=> F v oF v0; rewrite /hb le_maxr lexx.
- move=> F v oF v0; rewrite /hb le_maxr; apply/orP; right; apply: ler_sub => //.
  by rewrite ler_pdivr_mulr ?t0 // ler_pemulr // product_ge1.
move=> F c v oF cF v0; rewrite /bellman_h /hb (product_rem cF).
have c1 : 1 < c.2 by move/allP: oF; apply.
have c0 : 0 < c.2 by apply: lt_trans c1.
have cn : c.2 != 0 by rewrite gt_eqF.
have c10 : 0 < c.2 - 1 by rewrite subr_gt0.
have c1n : c.2 - 1 != 0 by rewrite gt_eqF.
have c20 : 0 < c.2 + 1 by exact: (addr_gt0 c0 ltr01).
have c2n : c.2 + 1 != 0 by rewrite gt_eqF.
have k0 := t0 _ (or _ _ oF cF).
have kn : product (rem c F) != 0 by rewrite gt_eqF.
have -> : v / (c.2 * product (rem c F)) = v / c.2 / product (rem c F) by field; rewrite ?cn ?kn.
have m1 : c.2^-1 <= 1 by rewrite invf_le1 // ltW.
case: c.1 => [s /andP[s1 sr]|].
  have s0 : 0 < s by apply: lt_le_trans s1.
  apply: hinge_chord k0 _ _ _ _ _.
  - by apply: divr_ge0; rewrite ?subr_ge0 // ltW.
  - by apply: divr_ge0; rewrite ?subr_ge0 // ltW.
  - by rewrite -mulrDl addrA subrK divff.
  - by apply: ler_wpmul2l => //; rewrite lef_pinv.
  - rewrite -mulrA; apply: ler_wpmul2l => //; apply: (le_trans m1).
    by rewrite ler_pdivl_mulr // mul1r.
apply: hinge_chord k0 _ _ _ _ _.
- by apply: divr_ge0; apply: ltW.
- by rewrite invr_ge0 ltW.
- by rewrite -[X in _ + X]mul1r -mulrDl divff.
- exact: lexx.
- by apply: ler_wpmul2l => //; apply: (le_trans m1); apply: ltW.
Qed.

Theorem basic (D : Type) (nb : D -> D -> Prop) E
  (A : @analyst R (cost R) (@cls R) D nb _ (@left_over R) (@without R) E) d d' S u :
  okb E -> nb d d' -> 0 <= u ->
  Pr A d S <= u * Pr A d' S + Num.max 0 (1 - u / product E).
Proof. exact: profiles_bound_every_play basic_profiles. Qed.
End Basic.
