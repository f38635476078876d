(* What Worlds.v computes is what Supremum.v proves: of pure costs the supremum over all strategies is the
   fold of their rounds, in any order; of the two bounded ranges no largest loss outside of the grid is
   better. docs/notes/proofs.md *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From mathcomp.classical Require Import boolp classical_sets.
From mathcomp.analysis Require Import reals.
From dptopk Require Import Game Rounds Setwise Union Optimum Worlds Supremum.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Fold.
Variable R : realFieldType.
Definition fold (E : seq R) : R -> R -> R := foldr (@response R) (@positive R) E.
Definition pure (E : seq R) : seq (cost R) := [seq (false, r) | r <- E].

Lemma response_swap (r s : R) W p q : response r (response s W) p q = response s (response r W) p q.
Proof.
rewrite /response !mulrDr -!addrA; congr (_ + _); first by rewrite mulrCA mulrAC.
rewrite addrCA [in RHS]addrCA.
have e x y (a : R) : x * (y * a) = y * (x * a) by rewrite mulrCA.
by rewrite !(mulrAC _ s) ![(r + 1)^-1 * ((s + 1)^-1 * _)]e addrCA.
Qed.

Lemma response_ext (r : R) W W2 p q : (forall a b, W a b = W2 a b) -> response r W p q = response r W2 p q.
Proof. by move=> e; rewrite /response !e. Qed.

Lemma fold_rem E c p q : c \in E -> fold E p q = response c (fold (rem c E)) p q.
Proof.
elim: E p q => // x E IH p q; rewrite inE /=; have [-> //|xc /= cE] := eqVneq c x.
by rewrite response_swap; apply: response_ext => a b; apply: IH.
Qed.

Definition above_one (E : seq R) := forall r, r \in E -> 1 < r.
Lemma above_rem E c : above_one E -> above_one (rem c E).
Proof. by move=> H r /mem_rem; apply: H. Qed.

Lemma response_mono (r : R) W W2 p q : 1 < r -> 0 <= p -> 0 <= q ->
  (forall a b, 0 <= a -> 0 <= b -> W a b <= W2 a b) -> response r W p q <= response r W2 p q.
Proof.
move=> r1 p0 q0 H; have r0 : 0 <= r by rewrite (le_trans ler01) // ltW.
have i0 : 0 <= (r + 1)^-1 by rewrite invr_ge0 addr_ge0 ?ler01.
by rewrite /response; apply: ler_add; apply: ler_wpmul2l => //; apply: H; rewrite ?mulr_ge0.
Qed.

Lemma positive_response (r p q : R) : 1 < r -> 0 <= p -> 0 <= q -> positive p q <= response r (@positive R) p q.
Proof.
move=> r1 p0 q0; have r0 : 0 < r by rewrite (lt_trans ltr01).
have a0 : 0 < r + 1 by rewrite addr_gt0 ?ltr01.
have i0 : 0 <= (r + 1)^-1 by rewrite invr_ge0 ltW.
rewrite /response -!positive_hom //.
apply: le_trans (positive_add _ _ _ _); rewrite le_eqVlt; apply/orP; left; apply/eqP.
by congr positive; field; rewrite gt_eqF.
Qed.

Lemma positive_fold E p q : above_one E -> 0 <= p -> 0 <= q -> positive p q <= fold E p q.
Proof.
elim: E p q => [|r E IH] p q H p0 q0 //=.
have r1 : 1 < r by apply: H; rewrite inE eqxx.
apply: (le_trans (positive_response r1 p0 q0)); apply: response_mono => // a b a0 b0.
by apply: IH => // s sE; apply: H; rewrite inE sE orbT.
Qed.

Lemma pure_rem E (c : cost R) : ~~ c.1 -> rem c (pure E) = pure (rem c.2 E).
Proof.
case: c => [[]//] r _; elim: E => //= x E IH.
have -> : ((false, x) == (false, r)) = (x == r) by [].
by case: eqP => //= _; rewrite -IH.
Qed.

Lemma pure_in E (c : cost R) : c \in pure E -> ~~ c.1 /\ c.2 \in E.
Proof. by case/mapP => r rE ->. Qed.

(* No strategy is worth more than the fold, and the one that plays all is worth as much. *)
Lemma worth_fold F (B : strategy F) E p q : F = pure E -> above_one E -> 0 <= p -> 0 <= q ->
  worth B p q <= fold E p q.
Proof.
elim: B E p q => {F} [F|F c s cF s1 a IHa b IHb] E p q e H p0 q0 /=; first exact: positive_fold.
have [c1 cE] : ~~ c.1 /\ c.2 \in E by apply: pure_in; rewrite -e.
have r0 : 0 <= c.2 by rewrite (le_trans ler01) // ltW // H.
have e' : without F c = pure (rem c.2 E) by rewrite /without e pure_rem.
have i0 : 0 <= (c.2 + 1)^-1 by rewrite invr_ge0 addr_ge0 ?ler01.
rewrite (negbTE c1) (fold_rem _ _ cE) /response.
by apply: ler_add; apply: ler_wpmul2l => //; [apply: IHa|apply: IHb]; rewrite ?mulr_ge0 //; apply: above_rem.
Qed.

Lemma fold_strategy E : above_one E -> exists B : strategy (pure E), forall p q, worth B p q = fold E p q.
Proof.
elim: E => [|r E IH] H; first by exists (Halt (pure [::])).
have [B EB] : exists B : strategy (pure E), forall p q, worth B p q = fold E p q.
  by apply: IH => s sE; apply: H; rewrite inE sE orbT.
have first : left_over (pure (r :: E)) (false, r) by rewrite /left_over inE eqxx.
have one : 1 <= (1 : R) <= (false, r).2 by rewrite lexx /= ltW // H // inE eqxx.
have e : pure E = without (pure (r :: E)) (false, r) by rewrite /without /= eqxx.
move: B EB; rewrite e => B EB.
by exists (Play first one B B) => p q; rewrite /= !EB.
Qed.
End Fold.

(* Of pure costs V is the fold: adaptivity and order gain nothing. *)
Theorem V_of_pure_costs (R : realType) (E : seq R) p q : above_one E -> 0 <= p -> 0 <= q ->
  V (pure E) p q = fold E p q.
Proof.
move=> H p0 q0; have H' : all_above (pure E) by move=> c /pure_in[_]; apply: H.
apply/eqP; rewrite eq_le; apply/andP; split; first by apply: V_le => B; apply: worth_fold.
by have [B <-] := fold_strategy H; apply: V_ge.
Qed.

(* The same in rationals. *)
Lemma ratr_max (R : realFieldType) (x y : rat) : ratr (Num.max x y) = Num.max (ratr x) (ratr y) :> R.
Proof. by case: (leP x y) => h; [rewrite max_r ?ler_rat|rewrite max_l ?ler_rat // ltW]. Qed.

Lemma ratr_fold (R : realFieldType) (E : seq rat) p q :
  ratr (fold E p q) = fold [seq ratr r | r <- E] (ratr p) (ratr q) :> R.
Proof.
have step (F : realFieldType) (x : F) l y z : fold (x :: l) y z = response x (fold l) y z by [].
elim: E p q => [|r E IH] p q; first by rewrite /= /positive ratr_max rmorphB rmorph0.
have mul x y : ratr (x * y) = ratr x * ratr y :> R by apply: rmorphM.
have add x y : ratr (x + y) = ratr x + ratr y :> R by apply: rmorphD.
have inv x : ratr x^-1 = (ratr x)^-1 :> R by apply: fmorphV.
have one : ratr 1 = 1 :> R by apply: rmorph1.
by rewrite map_cons !step /response add !mul !IH inv add one !mul.
Qed.

Section Worlds.
Variable R : realType.
Lemma ratr1 : ratr 1 = 1 :> R. Proof. exact: rmorph1. Qed.
Lemma ratrM x y : ratr (x * y) = ratr x * ratr y :> R. Proof. exact: rmorphM. Qed.
Lemma ratrD x y : ratr (x + y) = ratr x + ratr y :> R. Proof. exact: rmorphD. Qed.
Lemma ratrB x y : ratr (x - y) = ratr x - ratr y :> R. Proof. exact: rmorphB. Qed.
Lemma ratrV x : ratr x^-1 = (ratr x)^-1 :> R. Proof. exact: fmorphV. Qed.
Local Notation two := (2%:R : R).

Lemma ratr_whole (n : nat) : ratr n%:Q = n%:R :> R. Proof. by rewrite ratr_int. Qed.

(* world_pure: the value that was computed is the supremum. *)
Theorem world_pure_is_V :
  V (pure [:: two; two]) 1 two = ratr (Worlds.V [::] 2 [:: (false, 2%:Q, 0); (false, 2%:Q, 0)] 1 2%:Q).
Proof.
rewrite V_of_pure_costs ?ler01 ?ler0n //; last by move=> r; rewrite !inE orbb => /eqP ->; rewrite ltr1n.
have -> : fold [:: two; two] 1 two = ratr (fold [:: 2%:Q; 2%:Q] 1 2%:Q).
  by rewrite ratr_fold !map_cons ratr1 !ratr_whole.
by rewrite world_pure; congr ratr; apply/eqP; vm_compute.
Qed.

(* world_failure: the cost that fails does so with probability 1/10, whenever it is played, and else the
   two are worth their supremum. *)
Theorem world_failure_is_V :
  (1 - 10%:R^-1) * V (pure [:: two; 3%:R]) 1 two + 10%:R^-1 =
  ratr (Worlds.V [::] 2 [:: (false, 2%:Q, 0); (false, 3%:Q, 1%:Q / 10%:Q)] 1 2%:Q).
Proof.
rewrite V_of_pure_costs ?ler01 ?ler0n //; last first.
  by move=> r; rewrite !inE => /orP[] /eqP ->; rewrite ltr1n.
have -> : fold [:: two; 3%:R] 1 two = ratr (fold [:: 2%:Q; 3%:Q] 1 2%:Q).
  by rewrite ratr_fold !map_cons ratr1 !ratr_whole.
rewrite world_failure.
have e w : (1 - 10%:R^-1) * ratr w + 10%:R^-1 = ratr ((1 - 10%:Q^-1) * w + 10%:Q^-1) :> R.
  by rewrite ratrD ratrM ratrB ratrV ratr1 ratr_whole.
by rewrite e; congr ratr; apply/eqP; vm_compute.
Qed.

(* world_range: no largest loss is better than those of the grid. *)
Section Range.
Local Notation c := ((true, 16%:R) : cost R).
Local Notation root := (@Num.sqrt R).

(* What one range is worth, at most; s = t^2. *)
Let g (p q : R) : R := (16%:R * p - 8%:R * root (p * q) + q) / 15%:R.

Lemma square_le (x y : R) : 0 <= x -> 0 <= y -> root (x * y) *+ 2 <= x + y.
Proof.
move=> x0 y0; rewrite sqrtrM // -subr_ge0 (_ : _ - _ = (root x - root y) ^+ 2) ?sqr_ge0 //.
by rewrite sqrrB !sqr_sqrtr // addrAC.
Qed.

Lemma root_16 (x : R) : 0 <= x -> root (16%:R * x) = 4%:R * root x.
Proof.
move=> x0; rewrite sqrtrM ?ler0n //; congr (_ * _).
have -> : 16%:R = 4%:R ^+ 2 :> R by rewrite -natrX.
by rewrite sqrtr_sqr ger0_norm ?ler0n.
Qed.

Lemma worth_nil F (B : strategy F) (p q : R) : F = [::] -> worth B p q = positive p q.
Proof. by case: B => [E|E c' s cE s1 a b] e //; suff : false by []; move: cE; rewrite /left_over e. Qed.

Lemma roots (p q : R) : 0 <= p -> 0 <= q ->
  [/\ 8%:R * root (p * q) <= 16%:R * p + q, 8%:R * root (p * q) <= p + 16%:R * q &
      forall s, 0 < s -> 8%:R * root (p * q) <= p * s + 16%:R * q / s].
Proof.
move=> p0 q0; have n0 : 0 <= 16%:R :> R by apply: ler0n.
have e x : 0 <= x -> 8%:R * root x = root (16%:R * x) *+ 2.
  by move=> x0; rewrite root_16 // -mulrnAl -mulrnA.
rewrite e ?mulr_ge0 //; split.
- by have := square_le (mulr_ge0 n0 p0) q0; rewrite -mulrA.
- by have := square_le p0 (mulr_ge0 n0 q0); rewrite mulrCA.
move=> s s0; have := square_le (mulr_ge0 p0 (ltW s0)) (divr_ge0 (mulr_ge0 n0 q0) (ltW s0)).
rewrite (_ : p * s * (16%:R * q / s) = 16%:R * (p * q)) //.
by field; rewrite gt_eqF.
Qed.

Lemma one_range F (B : strategy F) p q : F = [:: c] -> 0 <= p -> 0 <= q -> worth B p q <= g p q.
Proof.
have d0 : 0 < 15%:R :> R by rewrite ltr0Sn.
move=> e p0 q0; have [h1 h2 h3] := roots p0 q0; move: e h1 h2 h3.
rewrite /g; move: (root (p * q)) => h.
case: B => [E|E c' s cE s1 a b] e h1 h2 h3 /=.
  rewrite /positive le_maxl; apply/andP; split; last by rewrite divr_ge0 ?(ltW d0) // addrAC subr_ge0.
  rewrite ler_pdivl_mulr // -subr_ge0.
  have -> : 16%:R * p - 8%:R * h + q - (p - q) * 15%:R = p + 16%:R * q - 8%:R * h by ring.
  by rewrite subr_ge0.
have ce : c' = c by move: cE; rewrite /left_over e inE => /eqP.
move: a b s1 cE; rewrite ce => a b s1 cE /=.
have nil : without E c = [::] by rewrite /without e /= eqxx.
rewrite !(worth_nil _ _ _ nil).
case/andP: s1 => /= s1 s16; have s0 : 0 < s by apply: lt_le_trans s1.
have sn : s != 0 by rewrite gt_eqF.
have e15 : 16%:R - 1 = 15%:R :> R by rewrite -[1]/(1%:R) -natrB.
rewrite e15; have [lo|hi] := leP (p * s) q.
  rewrite /positive !max_r ?subr_le0 //; last by rewrite (le_trans lo) // ler_pemulr // ler1n.
  by rewrite !mulr0 addr0 divr_ge0 ?(ltW d0) // addrAC subr_ge0.
rewrite {1}/positive max_l ?subr_ge0 ?(ltW hi) //.
have [lo|hi2] := leP (p * s) (q * 16%:R).
  rewrite /positive max_r ?subr_le0 // mulr0 addr0 ler_pdivl_mulr // -subr_ge0.
  have -> : 16%:R * p - 8%:R * h + q - (16%:R - s) / (s * 15%:R) * (p * s - q) * 15%:R =
    p * s + 16%:R * q / s - 8%:R * h by field; rewrite sn.
  by rewrite subr_ge0; apply: h3.
rewrite /positive max_l ?subr_ge0 ?(ltW hi2) // ler_pdivl_mulr // -subr_ge0.
have -> : 16%:R * p - 8%:R * h + q - ((16%:R - s) / (s * 15%:R) * (p * s - q)
   + (s - 1) / (s * 15%:R) * (p * s - q * 16%:R)) * 15%:R = p + 16%:R * q - 8%:R * h.
  by field; rewrite sn.
by rewrite subr_ge0.
Qed.

Lemma two_ranges F (B : strategy F) : F = [:: c; c] -> worth B 1 1 <= 53%:R / 75%:R.
Proof.
case: B => [E|E c' s cE s1 a b] e /=.
  by rewrite /positive subrr max_l ?lexx // divr_ge0 ?ler0n.
have ce : c' = c by move: cE; rewrite /left_over e !inE orbb => /eqP.
move: a b s1 cE; rewrite ce => a b s1 cE /=.
have one : without E c = [:: c] by rewrite /without e /= eqxx.
case/andP: s1 => /= s1 s16; have s0 : 0 < s by apply: lt_le_trans s1.
have r1 : 1 < 16%:R :> R by rewrite ltr1n.
have s1r : 1 <= s <= 16%:R by rewrite s1.
have [w1 w2] := weights_pos r1 s1r.
have g1 : worth a (1 * s) 1 <= g (1 * s) 1 by apply: one_range; rewrite ?mul1r ?ler01 // ltW.
have g2 : worth b (1 * s) (1 * 16%:R) <= g (1 * s) (1 * 16%:R).
  by apply: one_range; rewrite ?mul1r ?ler0n // ltW.
apply: (le_trans (ler_add (ler_wpmul2l w1 g1) (ler_wpmul2l w2 g2))).
have e15 : 16%:R - 1 = 15%:R :> R by rewrite -[1]/(1%:R) -natrB.
have e1 : root (1 * s * 1) = root s by rewrite mul1r mulr1.
have e2 : root (1 * s * (1 * 16%:R)) = 4%:R * root s.
  by rewrite -root_16 ?(ltW s0) // !mul1r mulrC.
rewrite /g e1 e2 e15.
have tt : s = root s * root s by rewrite -expr2 sqr_sqrtr // ltW.
have t0 : 0 < root s by rewrite sqrtr_gt0.
move: tt t0 {g1 g2 w1 w2 e1 e2}; move: (root s) => t -> t0; rewrite -subr_ge0.
have -> : 53%:R / 75%:R - ((16%:R - t * t) / (t * t * 15%:R)
      * ((16%:R * (1 * (t * t)) - 8%:R * t + 1) / 15%:R)
    + (t * t - 1) / (t * t * 15%:R)
      * ((16%:R * (1 * (t * t)) - 8%:R * (4%:R * t) + 1 * 16%:R) / 15%:R))
  = 24%:R * (t - 2%:R) ^+ 2 / (225%:R * t).
  by field; rewrite ?pnatr_eq0 gt_eqF.
apply: divr_ge0; first by apply: mulr_ge0; [apply: ler0n|apply: sqr_ge0].
by apply: mulr_ge0; [apply: ler0n|apply: ltW].
Qed.

Lemma play_one s : 1 <= s <= 16%:R -> exists B : strategy [:: c], forall p q,
  worth B p q = chord 16%:R s (@positive R) p q.
Proof.
move=> s1; have first : left_over [:: c] c by rewrite /left_over inE eqxx.
by exists (Play first s1 (Halt _) (Halt _)).
Qed.

Lemma play_two : exists B : strategy [:: c; c], worth B 1 1 = 53%:R / 75%:R.
Proof.
have le1 n : (0 < n <= 16)%N -> 1 <= (n%:R : R) <= 16%:R by rewrite ler1n ler_nat.
have first : left_over [:: c; c] c by rewrite /left_over inE eqxx.
have e : without [:: c; c] c = [:: c] by rewrite /without /= eqxx.
have next s : 1 <= s <= 16%:R -> exists B : strategy (without [:: c; c] c), forall p q,
    worth B p q = chord 16%:R s (@positive R) p q.
  by rewrite e; apply: play_one.
have [A EA] := next _ (le1 2%N isT); have [B EB] := next _ (le1 8%N isT).
exists (Play first (le1 4%N isT) A B); rewrite /= EA EB /chord /positive.
have pos (x : R) n : x = n%:R -> Num.max x 0 = n%:R by move=> ->; rewrite max_l // ler0n.
have neg (x : R) n : x = - n%:R -> Num.max x 0 = 0 by move=> ->; rewrite max_r // oppr_le0 ler0n.
rewrite (pos _ 7%N); last by ring.
rewrite (neg _ 8%N); last by ring.
rewrite (pos _ 16%N); last by ring.
rewrite (neg _ 224%N); last by ring.
by field.
Qed.

Theorem world_range_is_V : V [:: c; c] 1 1 = ratr (Worlds.V [:: 1; 2%:Q; 4%:Q; 8%:Q; 16%:Q] 2
  [:: (true, 16%:Q, 0); (true, 16%:Q, 0)] 1 1).
Proof.
have H : all_above [:: c; c] by move=> b; rewrite !inE orbb => /eqP -> /=; rewrite ltr1n.
rewrite world_range ratrM ratrV !ratr_whole; apply/eqP; rewrite eq_le; apply/andP; split.
  by apply: V_le => B; apply: two_ranges.
by have [B <-] := play_two; apply: V_ge; rewrite ?ler01.
Qed.
End Range.
End Worlds.
