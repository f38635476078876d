(* One round of pure DP and of bounded range, for a sublinear function of the two weights.
   docs/notes/setwise.md, "The step" *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From dptopk Require Import Game.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Rounds.
Variable R : realFieldType.

Definition sublinear (W : R -> R -> R) :=
  (forall p q p' q', 0 <= p -> 0 <= q -> 0 <= p' -> 0 <= q' ->
     W (p + p') (q + q') <= W p q + W p' q') /\
  (forall k p q, 0 <= k -> 0 <= p -> 0 <= q -> W (k * p) (k * q) <= k * W p q).

(* A pair that is a mixture of two fixed points, (a1, b1) and (a2, b2), is worth at most those two. *)
Lemma two_rays W n (P Q al be : 'I_n -> R) a1 b1 a2 b2 p q : sublinear W ->
  0 <= a1 -> 0 <= b1 -> 0 <= a2 -> 0 <= b2 -> 0 <= p -> 0 <= q ->
  (forall i, 0 <= al i) -> (forall i, 0 <= be i) ->
  (forall i, P i = al i * a1 + be i * a2) -> (forall i, Q i = al i * b1 + be i * b2) ->
  \sum_i W (p * P i) (q * Q i) <=
    (\sum_i al i) * W (p * a1) (q * b1) + (\sum_i be i) * W (p * a2) (q * b2).
Proof.
move=> [Wadd Whom] a10 b10 a20 b20 p0 q0 al0 be0 EP EQ.
rewrite !mulr_suml -big_split /=; apply: ler_sum => i _.
have -> : p * P i = al i * (p * a1) + be i * (p * a2) by rewrite EP; ring.
have -> : q * Q i = al i * (q * b1) + be i * (q * b2) by rewrite EQ; ring.
apply: le_trans (Wadd _ _ _ _ _ _ _ _) _; rewrite ?mulr_ge0 //.
by apply: ler_add; apply: Whom; rewrite ?mulr_ge0.
Qed.

(* r stands for e^epsilon, s for e^t. *)
Definition DP (r : R) : class R := fun n P Q => forall i, P i <= r * Q i /\ Q i <= r * P i.
Definition BR (r : R) : class R := fun n P Q => exists s, forall i, P i <= s * Q i /\ s * Q i <= r * P i.

(* The two outcomes of a bounded range with largest loss t, and of randomised response. *)
Definition chord (r s : R) (W : R -> R -> R) p q :=
  (r - s) / (s * (r - 1)) * W (p * s) q + (s - 1) / (s * (r - 1)) * W (p * s) (q * r).
Definition response (r : R) (W : R -> R -> R) p q :=
  (r + 1)^-1 * W (p * r) q + (r + 1)^-1 * W p (q * r).

Lemma BR_step r W n (P Q : law R n) p q : 1 < r -> sublinear W -> BR r P Q -> 0 <= p -> 0 <= q ->
  exists s, 1 <= s <= r /\ \sum_i W (p * P i) (q * Q i) <= chord r s W p q.
Proof.
move=> r1 sW [s Hs] p0 q0; exists s.
have Pr1 := pr_sum P; have Qr1 := pr_sum Q.
have s1 : 1 <= s.
  rewrite -Pr1 -[s]mulr1 -Qr1 mulr_sumr.
  by apply: ler_sum => i _; case: (Hs i).
have sr : s <= r.
  rewrite -[s]mulr1 -Qr1 -[r]mulr1 -Pr1 !mulr_sumr.
  by apply: ler_sum => i _; case: (Hs i).
split; first by rewrite s1.
have s0 : 0 < s by apply: lt_le_trans s1.
have r0 : 0 < r by apply: lt_trans r1.
have r10 : 0 < r - 1 by rewrite subr_gt0.
have den : 0 < s * (r - 1) by rewrite mulr_gt0.
have sn : s != 0 by rewrite gt_eqF.
have rn : r - 1 != 0 by rewrite gt_eqF.
pose al i := (r * P i - s * Q i) / (s * (r - 1)).
pose be i := (s * Q i - P i) / (s * (r - 1)).
have al0 i : 0 <= al i by apply: divr_ge0; [rewrite subr_ge0; case: (Hs i)|exact: ltW].
have be0 i : 0 <= be i by apply: divr_ge0; [rewrite subr_ge0; case: (Hs i)|exact: ltW].
have EP i : P i = al i * s + be i * s by rewrite /al /be; field; rewrite sn rn.
have EQ i : Q i = al i * 1 + be i * r by rewrite /al /be; field; rewrite sn rn.
have := two_rays sW (ltW s0) ler01 (ltW s0) (ltW r0) p0 q0 al0 be0 EP EQ.
by rewrite /al /be -!mulr_suml !sumrB -!mulr_sumr Pr1 Qr1 !mulr1 /chord.
Qed.

Lemma DP_step r W n (P Q : law R n) p q : 1 < r -> sublinear W -> DP r P Q -> 0 <= p -> 0 <= q ->
  \sum_i W (p * P i) (q * Q i) <= response r W p q.
Proof.
move=> r1 sW H p0 q0.
have Pr1 := pr_sum P; have Qr1 := pr_sum Q.
have r0 : 0 < r by apply: lt_trans r1.
have m0 : 0 < r - 1 by rewrite subr_gt0.
have a0 : 0 < r + 1 by rewrite addr_gt0.
have mn : r - 1 != 0 by rewrite gt_eqF.
have an : r + 1 != 0 by rewrite gt_eqF.
have d0 : 0 <= (r - 1) * (r + 1) by rewrite mulr_ge0 // ltW.
pose al i := (r * P i - Q i) / ((r - 1) * (r + 1)).
pose be i := (r * Q i - P i) / ((r - 1) * (r + 1)).
have al0 i : 0 <= al i by apply: divr_ge0 => //; rewrite subr_ge0; case: (H i).
have be0 i : 0 <= be i by apply: divr_ge0 => //; rewrite subr_ge0; case: (H i).
have EP i : P i = al i * r + be i * 1 by rewrite /al /be; field; rewrite mn an.
have EQ i : Q i = al i * 1 + be i * r by rewrite /al /be; field; rewrite mn an.
have := two_rays sW (ltW r0) ler01 ler01 (ltW r0) p0 q0 al0 be0 EP EQ.
rewrite /al /be -!mulr_suml !sumrB -!mulr_sumr Pr1 Qr1 !mulr1 /response.
by have -> : (r - 1) / ((r - 1) * (r + 1)) = (r + 1)^-1 by field; rewrite mn an.
Qed.

(* A range as papers define it: all log-ratios of the pair lie within epsilon of each other. *)
Lemma BR_pairwise r n (P Q : law R n) : 0 < r ->
  (forall i j, P i * Q j <= r * (Q i * P j)) -> BR r P Q.
Proof.
move=> r0 H.
have [i0 Qi0] : exists i, 0 < Q i.
  apply/existsP; rewrite -[X in is_true X]negbK; apply/negP => /existsPn H0.
  have : \sum_i Q i <= \sum_(i < n) (0 : R) by apply: ler_sum => i _; rewrite leNgt H0.
  by rewrite big1_eq pr_sum ler10.
have [j Qj Hj] := @Order.TotalTheory.arg_maxP _ _ _ i0 (fun i => 0 < Q i) (fun i => P i / Q i) Qi0.
exists (P j / Q j) => i.
have P0 : Q i = 0 -> P i = 0.
  move=> Qi; apply/eqP; rewrite eq_le pr_ge0 andbT.
  by have := H i j; rewrite Qi mul0r mulr0 pmulr_lle0.
have /orP[/eqP Qi|Qi] : (Q i == 0) || (0 < Q i) by rewrite eq_sym -le_eqVlt pr_ge0.
  by rewrite Qi P0 // !mulr0 lexx.
split; first by rewrite -ler_pdivr_mulr //; apply: Hj.
by rewrite mulrAC ler_pdivr_mulr // -mulrA [P i * _]mulrC; apply: H.
Qed.

(* Every chord is worth what some pair of the class is: the bound of a round is not larger than needed. *)
Definition two (a : R) (i : 'I_2) : R := if i == ord0 then a else 1 - a.
Lemma two_law a : 0 <= a <= 1 -> {l : law R 2 | forall i, l i = two a i}.
Proof.
move=> /andP[a0 a1].
have ge i : 0 <= two a i by rewrite /two; case: eqP; rewrite ?subr_ge0.
have su : \sum_i two a i = 1 by rewrite big_ord_recl big_ord1 /two /= addrCA subrr addr0.
by exists (Law ge su).
Qed.

Lemma BR_pair r s : 1 < r -> 1 <= s <= r -> exists P Q : law R 2,
  [/\ BR r P Q, P ord0 = s * ((r - s) / (s * (r - 1))), P ord_max = s * ((s - 1) / (s * (r - 1))),
      Q ord0 = (r - s) / (s * (r - 1)) & Q ord_max = r * ((s - 1) / (s * (r - 1)))].
Proof.
move=> r1 /andP[s1 sr].
have r10 : 0 < r - 1 by rewrite subr_gt0.
have s0 : 0 < s by apply: lt_le_trans s1.
have rn : r - 1 != 0 by rewrite gt_eqF.
have sn : s != 0 by rewrite gt_eqF.
have den : 0 < s * (r - 1) by rewrite mulr_gt0.
have a01 : 0 <= (r - s) / (r - 1) <= 1.
  rewrite divr_ge0 ?subr_ge0 // ?(ltW r1) //= ler_pdivr_mulr // mul1r.
  by rewrite ler_add2l ler_opp2.
have b01 : 0 <= (r - s) / (s * (r - 1)) <= 1.
  rewrite divr_ge0 ?subr_ge0 ?(ltW den) //= ler_pdivr_mulr // mul1r mulrBr mulr1 ler_add2r.
  by rewrite ler_pemull // ltW // (lt_trans ltr01 r1).
have [P EP] := two_law a01; have [Q EQ] := two_law b01.
have P1 : 1 - (r - s) / (r - 1) = s * ((s - 1) / (s * (r - 1))) by field; rewrite ?rn ?sn.
have Q1 : 1 - (r - s) / (s * (r - 1)) = r * ((s - 1) / (s * (r - 1))) by field; rewrite ?rn ?sn.
have P0 : (r - s) / (r - 1) = s * ((r - s) / (s * (r - 1))) by field; rewrite ?rn ?sn.
have al0 : 0 <= (r - s) / (s * (r - 1)) by case/andP: b01.
have be0 : 0 <= (s - 1) / (s * (r - 1)) by rewrite divr_ge0 ?subr_ge0 // ltW.
exists P, Q; rewrite !EP !EQ /two /= -P0 P1 Q1; split=> //.
exists s => i; rewrite EP EQ /two; case: eqP => _; rewrite ?P1 ?Q1 ?P0.
  by split=> //; rewrite ler_pemull ?(ltW r1) // mulr_ge0 // ltW.
split; last by rewrite [s * (r * _)]mulrCA lexx.
by rewrite ler_wpmul2l ?(ltW s0) // ler_pemull // ltW.
Qed.

Lemma DP_pair r : 1 < r -> exists P Q : law R 2,
  [/\ DP r P Q, P ord0 = r * (r + 1)^-1, P ord_max = (r + 1)^-1,
      Q ord0 = (r + 1)^-1 & Q ord_max = r * (r + 1)^-1].
Proof.
move=> r1; have r0 : 0 < r by apply: lt_trans r1.
have a0 : 0 < r + 1 by rewrite addr_gt0.
have an : r + 1 != 0 by rewrite gt_eqF.
have i0 : 0 <= (r + 1)^-1 by rewrite invr_ge0 ltW.
have b01 : 0 <= (r + 1)^-1 <= 1 by rewrite i0 invf_le1 // ler_addr ltW.
have a01 : 0 <= r * (r + 1)^-1 <= 1.
  by rewrite mulr_ge0 ?(ltW r0) //= ler_pdivr_mulr // mul1r ler_addl ler01.
have [P EP] := two_law a01; have [Q EQ] := two_law b01.
have P1 : 1 - r * (r + 1)^-1 = (r + 1)^-1 by field.
have Q1 : 1 - (r + 1)^-1 = r * (r + 1)^-1 by field.
exists P, Q; rewrite !EP !EQ /two /= P1 Q1; split=> // i.
rewrite EP EQ /two; case: eqP => _; rewrite ?P1 ?Q1.
  split=> //; rewrite mulrA ler_pemull // -[1]mulr1.
  by apply: ler_pmul => //; apply: ltW.
split=> //; rewrite mulrA ler_pemull // -[1]mulr1.
by apply: ler_pmul => //; apply: ltW.
Qed.

(* The classes are closed under swapping the two data sets. *)
Lemma DP_sym r n (P Q : law R n) : DP r P Q -> DP r Q P.
Proof. by move=> H i; case: (H i). Qed.

Lemma BR_sym r n (P Q : law R n) : 1 < r -> BR r P Q -> BR r Q P.
Proof.
move=> r1 [s H].
have s1 : 1 <= s.
  have Qr1 := pr_sum Q; rewrite -(pr_sum P) -[s]mulr1 -Qr1 mulr_sumr.
  by apply: ler_sum => i _; case: (H i).
have s0 : 0 < s by apply: lt_le_trans s1.
have r0 : 0 < r by apply: lt_trans r1.
exists (r / s) => i; case: (H i) => a b; split.
  by rewrite mulrAC ler_pdivl_mulr // [Q i * s]mulrC.
by rewrite -mulrA ler_wpmul2l ?(ltW r0) // [s^-1 * _]mulrC ler_pdivr_mulr // [Q i * s]mulrC.
Qed.
End Rounds.
