(* A certificate's cell: what a node test proves for all u between two nodes.
   docs/notes/certificates.md; checker/check_certificate.py, check_step *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From dptopk Require Import Game Rounds Setwise.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.
Section Cell.
Variable R : realFieldType.

(* The chord of a round of bounded range in one variable; convex in u where h is. *)
Definition br_chord (r s : R) (h : R -> R) u :=
  (r - s) / (r - 1) * h (u / s) + (s - 1) / (r - 1) * h (u * r / s).
Lemma chord_convex r s h : 1 < r -> 1 <= s <= r -> convex h -> convex (br_chord r s h).
Proof.
move=> r1 /andP[s1 sr] ch a b x y a0 b0 ab x0 y0; rewrite /br_chord.
have s0 : 0 < s by apply: lt_le_trans s1.
have r0 : 0 < r by apply: lt_trans r1.
have r10 : 0 < r - 1 by rewrite subr_gt0.
have w1 : 0 <= (r - s) / (r - 1) by rewrite divr_ge0 ?subr_ge0 // ltW.
have w2 : 0 <= (s - 1) / (r - 1) by rewrite divr_ge0 ?subr_ge0 // ltW.
have sn : s != 0 by rewrite gt_eqF.
have H1 := ler_wpmul2l w1 (ch _ _ _ _ a0 b0 ab (divr_ge0 x0 (ltW s0)) (divr_ge0 y0 (ltW s0))).
have xr := divr_ge0 (mulr_ge0 x0 (ltW r0)) (ltW s0).
have yr := divr_ge0 (mulr_ge0 y0 (ltW r0)) (ltW s0).
have H2 := ler_wpmul2l w2 (ch _ _ _ _ a0 b0 ab xr yr).
have e1 : (a * x + b * y) / s = a * (x / s) + b * (y / s) by rewrite mulrDl -!mulrA.
have e2 : (a * x + b * y) * r / s = a * (x * r / s) + b * (y * r / s) by rewrite !mulrDl -!mulrA.
rewrite e1 e2; apply: le_trans (ler_add H1 H2) _.
rewrite le_eqVlt; apply/orP; left; apply/eqP.
by move: (h _) (h _) (h _) (h _) ((r - s) / (r - 1)) ((s - 1) / (r - 1)) => *; ring.
Qed.

(* Nodes suffice: what bounds the chord at two nodes bounds it between them. *)
Theorem nodes_suffice r s h x y vx vy a b : 1 < r -> 1 <= s <= r -> convex h -> 0 <= x -> 0 <= y ->
  br_chord r s h x <= vx -> br_chord r s h y <= vy -> 0 <= a -> 0 <= b -> a + b = 1 ->
  br_chord r s h (a * x + b * y) <= a * vx + b * vy.
Proof.
move=> r1 s1 ch x0 y0 Hx Hy a0 b0 ab.
apply: le_trans (chord_convex r1 s1 ch a0 b0 ab x0 y0) _.
by apply: ler_add; apply: ler_wpmul2l.
Qed.

(* Inside one cell, where h is al + be v on the left and ga + de v on the right, the chord is
   (t - p z - q / z) / (r - 1) with z = u / s: three cases, as in check_step. *)
Lemma cell_form (r s u al be ga de z : R) : 1 < r -> 1 <= s -> 0 < u -> z = u / s ->
  (r - s) / (r - 1) * (al + be * z) + (s - 1) / (r - 1) * (ga + de * (z * r)) =
  (r * al - be * u - ga + de * r * u - (de - be) * r * z - (al - ga) * u / z) / (r - 1).
Proof.
move=> r1 s1 u0 ->.
have s0 : 0 < s by apply: lt_le_trans s1.
have sn : s != 0 by rewrite gt_eqF.
have un : u != 0 by rewrite gt_eqF.
have rn : r - 1 != 0 by rewrite gt_eqF // subr_gt0.
by field; rewrite ?sn ?un ?rn.
Qed.

Lemma inside (p q m z : R) : 0 < z -> 0 <= p -> 0 <= q -> 0 <= m -> m ^+ 2 <= p * q ->
  2%:R * m <= p * z + q / z.
Proof.
move=> z0 p0 q0 m0 H.
have zn : z != 0 by rewrite gt_eqF.
have s0 : 0 <= p * z + q / z by rewrite addr_ge0 ?mulr_ge0 ?invr_ge0 ?(ltW z0).
have M0 : 0 <= 2%:R * m :> R by rewrite mulr_ge0 ?ler0n.
rewrite -ler_sqr ?nnegrE //.
apply: (@le_trans _ _ (4%:R * (p * q))).
  by rewrite exprMn -natrX ler_wpmul2l // ler0n.
rewrite -subr_ge0.
have -> : (p * z + q / z) ^+ 2 - 4%:R * (p * q) = (p * z - q / z) ^+ 2 by field; rewrite ?zn.
exact: sqr_ge0.
Qed.

Lemma ends_right (p q x y z : R) : 0 < x -> x <= z -> z <= y -> p <= 0 -> 0 <= q ->
  - p * z - q / z <= - p * y - q / y.
Proof.
move=> x0 xz zy p0 q0.
have z0 : 0 < z by apply: lt_le_trans xz.
have y0 : 0 < y by apply: lt_le_trans zy.
apply: ler_sub; first by rewrite ler_wpmul2l // oppr_ge0.
by rewrite ler_wpmul2l // lef_pinv.
Qed.
End Cell.
